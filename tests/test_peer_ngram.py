"""The rule behind another simulator's n-gram lengths is found from the tokens alone."""

import json

import numpy as np
import pytest

from benchmarks.peer_ngram import NO_EOS, ranked, read, share
from simkit.errors import ImporterError
from traces.attach.tokens import NGram

RULE = NGram(3, 2, 4)


@pytest.fixture
def file(tmp_path):
    """Made-up requests; of the last entry of each the run went on behind the output."""
    rng = np.random.default_rng(0)
    with (tmp_path / "made.jsonl").open("w") as out:
        for number in range(30):
            text = rng.integers(4, size=120).astype(np.int32)
            found = RULE.propose(text, 40, NO_EOS, 200)
            record = {
                "id": number,
                "prompt_token_ids": text[:40].tolist(),
                "generated_token_ids": text[40:110].tolist(),
                "acc_ngram": {"acc_len": (found.accepted[:70] + 1).tolist()},
            }
            out.write(json.dumps(record) + "\n")
    return tmp_path / "made.jsonl"


def test_the_rule_is_found(file):
    requests = read(str(file))
    shares = ranked(requests)
    best, found = shares[0]
    assert (best.least, best.most, best.which, best.length) == (2, 4, "first", 3)
    assert found.entries == 30 * 70
    assert found.equal + found.beyond == found.entries
    assert 0 < found.beyond < 100
    assert shares[1][1].equal < found.equal


def test_other_conditions_fit_less(file):
    requests = read(str(file))
    best = share(requests, RULE)
    for other in (share(requests, RULE, prompts=False), share(requests, RULE, shift=1)):
        assert other.found < best.found <= best.drafts


def test_a_file_without_them_is_refused(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"prompt_token_ids": [1], "generated_token_ids": [2]}\n')
    with pytest.raises(ImporterError, match="line 1: field acc_ngram is missing"):
        read(str(tmp_path / "other.jsonl"))
