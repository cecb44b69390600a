"""A cut of `benchmarks.families`: rows of tiny models are right, or the class is refused."""

import pytest

from benchmarks import families
from benchmarks.families import RECORDS, REFUSED, SILENT, UP_TO, family
from traces.record.pair import Pair

EXPECTED = {
    "llama": (RECORDS, ""),
    "qwen2": (RECORDS, ""),
    "gpt2": (RECORDS, ""),
    "mistral": (UP_TO, "sliding_window=8"),
    "mixtral": (UP_TO, "sliding_window=8"),
    "gemma2": (UP_TO, "sliding_window=8"),
    "gemma3_text": (UP_TO, "sliding_window=8"),
    "phi3": (UP_TO, "sliding_window=8, original_max_position_embeddings=16"),
    "mpt": (REFUSED, "branches side by side differ"),
    "gpt_neo": (REFUSED, "branches side by side differ"),
    "rwkv": (REFUSED, "keeps a state"),
    "bert": (REFUSED, "more tokens follow"),
    "bloom": (REFUSED, "does not take the recorder's masks"),
    "xlnet": (REFUSED, "more tokens follow"),
}
# Without the proof these are recorded, and wrong.
PLANTED = {
    "mistral": "the output is not that of generate",
    "phi3": "the output is not that of generate",
    "mpt": "rows of branches differ",
    "gpt_neo": "rows of branches differ",
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_families(kind):
    found = family(kind, families.MAPPED[kind])
    outcome, why = EXPECTED[kind]
    assert found.outcome == outcome and why in found.reason
    if outcome in (RECORDS, UP_TO):
        assert 0 < found.accepted < 1 and found.n_branches > 100


@pytest.mark.parametrize("kind", PLANTED)
def test_the_proof_is_what_refuses(kind, monkeypatch):
    monkeypatch.setattr(Pair, "prove", lambda *args: None)
    found = family(kind, families.MAPPED[kind])
    assert found.outcome == SILENT and PLANTED[kind] in found.reason
