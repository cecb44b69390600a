"""A cut of `benchmarks.families`: rows of tiny models are right, or the class is refused."""

import pytest

from benchmarks import families
from benchmarks.families import RECORDS, REFUSED, ROLLED, SILENT, UP_TO, family
from traces.record import forward
from traces.record.pair import Pair
from traces.record.proof_own import PACKED

EXPECTED = {
    "llama": (RECORDS, ""),
    "qwen2": (RECORDS, ""),
    "gpt2": (RECORDS, ""),
    "mistral": (RECORDS, ""),
    "mixtral": (RECORDS, ""),
    "gemma2": (RECORDS, ""),
    "gemma3_text": (RECORDS, ""),
    "phi3": (UP_TO, "original_max_position_embeddings=16"),
    "mpt": (ROLLED, "branches side by side differ"),
    "gpt_neo": (ROLLED, "branches side by side differ"),
    "rwkv": (ROLLED, "keeps a state"),
    "bert": (REFUSED, "more tokens follow"),
    "bloom": (ROLLED, "does not take the recorder's masks"),
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
    if outcome in (RECORDS, UP_TO, ROLLED):
        assert 0 < found.accepted < 1 and found.n_branches > (100 if outcome != ROLLED else 50)


def test_the_proof_finds_windows_that_are_not_heeded(monkeypatch):
    monkeypatch.setattr(forward, "reaches", lambda config: {})
    found = family("mistral", families.MAPPED["mistral"])
    assert (found.outcome, found.reason) == (UP_TO, "sliding_window=8")


@pytest.mark.parametrize("kind", PLANTED)
def test_the_proof_is_what_refuses(kind, monkeypatch):
    monkeypatch.setattr(forward, "reaches", lambda config: {})  # windows are not heeded
    monkeypatch.setattr(Pair, "prove", lambda *args: PACKED)
    found = family(kind, families.MAPPED[kind])
    assert found.outcome == SILENT and PLANTED[kind] in found.reason
