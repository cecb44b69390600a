"""A kind of drafter that another package adds is written, read, checked and replayed as it is."""

from dataclasses import replace

import numpy as np
import pytest

import simkit
import traces
from simkit.simulator.arguments import setting
from simkit.steps.loop_tables import arrays_of
from traces import drafters
from traces.drafters.lattice import Lattice
from traces.drafters.passes import DraftPasses
from traces.errors import TraceError
from traces.memory import Arrays, from_drafts
from traces.subset import select
from traces.trace import Trace
from traces.validate import validate
from traces.writer import save


class Chain(Lattice):
    """A lattice of another name, whose drafts take one pass for every two tokens."""

    name = stored = "chain"
    own = ()

    def draft_passes(self, manifest, tokens, unread=1):
        left = np.asarray(tokens)[..., None] - 2 * np.arange(2)  # before each of up to two passes
        return DraftPasses(np.clip(left, 0, 2), np.broadcast_to(2 * np.arange(2), left.shape))


def given(n=5, depth=3):
    """Drafts of 3 tokens from each of 5 positions; the first tokens are accepted."""
    start, at = (a.ravel() for a in np.mgrid[1 : n + 1, 1 : depth + 1])
    return {"sequence": np.zeros(n * depth, int), "start": start, "depth": at, "accepted": at < 2}


def chain(n=5):
    rows = given(n)
    base = from_drafts({"n_output": [n]}, rows, max_draft=3, max_new_tokens=9)
    header = replace(base.manifest, kind="chain")
    sequences = {"n_output": np.array([n]), "sequence": np.array([0])}
    sizes = {"lattice": len(rows["start"])}
    return base, Trace(header, Arrays(header, sequences, {"lattice": rows}, sizes))


@pytest.fixture
def known(monkeypatch):
    for part in ("_things", "_origins"):
        monkeypatch.setattr(drafters.KINDS, part, dict(getattr(drafters.KINDS, part)))
    drafters.register(Chain)


def test_it_is_written_read_checked_and_replayed(known, tmp_path):
    base, mine = chain()
    save(mine, tmp_path / "t")
    assert '"kind": "chain"' in (tmp_path / "t/manifest.json").read_text()
    assert validate(tmp_path / "t") == []
    loaded = traces.load(tmp_path / "t")
    rules = ["fixed(3)", "oracle(max_draft=3)", "pearl(1)"]
    cost = "linear(draft_s=1, target_s=4)"
    records = [simkit.replay(t, rules, cost).records() for t in (base, mine, loaded)]
    for one, two, three in zip(*records, strict=True):
        assert two == three
        assert [one[k] for k in ("drafted", "accepted")] == [
            two[k] for k in ("drafted", "accepted")
        ]
    drafted, passes = (records[1][0][name] for name in ("drafted", "draft_passes"))
    assert (drafted, passes) == (9, 6)  # three steps of 3 tokens, the last one past the end
    assert records[1][0]["draft_s"] == 6 and records[0][0]["draft_s"] == 9
    best, *others = simkit.replay(mine, ["prophet(max_draft=3)", *rules[:2]], cost).records()
    assert best["total_s"] <= min(record["total_s"] for record in others)


def test_without_its_package_the_trace_is_refused_by_name(known, tmp_path, monkeypatch):
    save(chain()[1], tmp_path / "t")
    monkeypatch.undo()
    with pytest.raises(TraceError, match="unknown kind of drafter 'chain'"):
        traces.load(tmp_path / "t")


def test_a_name_is_taken_once():
    class Other(Lattice):
        name = "path"

    with pytest.raises(TraceError, match="a kind of drafter named path exists: OnPath"):
        drafters.register(Other)


def test_what_a_kind_cannot_do_it_says():
    path, lattice = traces.load("reference"), given_lattice()
    assert [t.manifest.kind for t in (path, lattice)] == ["path", "lattice"]
    assert [t.manifest.drafter.can("path") for t in (path, lattice)] == [True, False]
    with pytest.raises(TraceError, match="only of a trace of rows can prompts be selected"):
        select(lattice, [0])


def given_lattice():
    return from_drafts({"n_output": [5]}, given(), max_draft=3, max_new_tokens=9)


def test_what_the_loop_reads_is_kept_with_the_layout_alone():
    trace = given_lattice()
    first, second = (setting(trace, None, "draft").layout for _ in range(2))
    assert arrays_of(first) is arrays_of(first)
    assert arrays_of(first) is not arrays_of(second)
