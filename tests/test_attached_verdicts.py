"""Rows of attached drafters that were changed and signed anew: each is refused, and by what."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
from trace_files import GREEDY, MODEL, SAMPLED, edit, record, rewrite, trace

import simkit
from traces import lazy_checks
from traces.attach import registry, run
from traces.attach.drafter import header_of
from traces.attach.tokens import again
from traces.attach.tokens.suffix import Suffix
from traces.errors import TraceError
from traces.finding import bundled
from traces.manifest import read_manifest
from traces.streamed import stream
from traces.thin import thin
from traces.trace import load
from traces.trees import shapes
from traces.validate import validate
from traces.writer import TraceWriter

RULES = {
    "prompt_lookup": "prompt_lookup(length=4, ngram=1)",
    "ngram": "ngram(least=1, most=2)",
    "suffix": "suffix(max_tokens=4)",
    "shared": "suffix(max_tokens=4, shared=true)",
    "planted": "suffix(max_tokens=6, tree=true)",
}
DEPTH, SHAPE = 4, "eagle2(top_k=2, depth=2)"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module", params=[GREEDY, SAMPLED], ids=["greedy", "sampled"])
def whole(request, tmp_path_factory):
    """A recording with a drafter of each kind; networks' rows are made up by their rules."""
    folder = tmp_path_factory.mktemp("whole") / "trace"
    record(folder, trace(5, request.param, eos_prob=0.05, vocab_size=9))
    recording = load(folder)
    for name, spec in RULES.items():
        run.attach(recording, registry.parse(spec), name=name)
    outputs = recording.sequences["output_tokens"].to_pylist()
    for name, table, drafted in (
        ("network", "lattice", chain),
        ("sparse", "lattice", chain),
        ("grown", "tree", tree),
    ):
        facts = {"draft": MODEL, "draft_passes": "draft", "kind": table}
        if table == "lattice":
            columns = ("draft_token",) if name == "network" else ("draft_token", "target_token")
            facts |= {"lattice_columns": columns, "max_draft": DEPTH}
        else:
            shape = shapes.parse(SHAPE)
            facts |= {"shapes": (SHAPE,), "width": 2, "max_draft": shape.levels}
        header = header_of(recording, registry.parse("ngram()"), **facts)
        draw = np.random.default_rng(1)
        with TraceWriter(folder / "drafters" / name, header) as writer:
            for shard in range(writer.n_shards):
                rows = [
                    row
                    for number in writer.shard_sequences(shard)
                    for start in range(1, min(len(outputs[number]), 19) + 1)
                    for row in drafted(number, start, outputs[number], header, draw)
                ]
                names = header.tables[table].names
                columns = {key: np.array([row[key] for row in rows]) for key in names}
                writer.write_shard(shard, None, **{table: columns})
            writer.finish()
    return folder


def chain(number, start, output, header, draw):
    """A draft of a network from one start: its token is the output's in six of ten rows."""
    accepted = True
    for depth in range(1, min(header.max_draft, header.max_new_tokens - start) + 1):
        at = start + depth - 2
        y = output[at] if at < len(output) else None
        token = y if y is not None and draw.random() < 0.6 else int(draw.integers(9))
        accepted = accepted and token == y
        yield {
            "sequence": number,
            "start": start,
            "depth": depth,
            "accepted": accepted,
            "draft_token": token,
            "target_token": 0 if y is None else y,
        }
        if token in header.eos_token_ids:
            return


def tree(number, start, output, header, draw):
    """A tree in which the nodes of the output's path have two children each."""
    key = {"sequence": number, "start": start}
    said = {"draft_entropy": np.nan, "draft_top1_prob": np.nan}
    token = output[start - 2] if start > 1 else 3
    root = {"node": 0, "parent": -1, "depth": 0, "rank": 0, "log_prob": 0.0, "on_path": True}
    yield {**key, **root, **said, "token": token}
    here, node = 0, 1
    for depth in range(1, min(header.max_draft, header.max_new_tokens - start) + 1):
        at = start + depth - 2
        y = output[at] if at < len(output) else -1
        pair = [y if y >= 0 and draw.random() < 0.6 else int(draw.integers(9))]
        pair.append(next(token for token in range(9) if token not in (pair[0], y)))
        onward = None
        for rank, token in enumerate(pair):
            facts = {"node": node, "parent": here, "depth": depth, "rank": rank, "token": token}
            yield {**key, **facts, **said, "log_prob": -1.0 - rank, "on_path": token == y}
            onward, node = (node if token == y else onward), node + 1
        if onward is None or y in header.eos_token_ids:
            return
        here = onward


def all_set(column, values):
    return lambda table: replaced(table, column, values(table[column].to_numpy()))


def replaced(table, column, values):
    index, field = table.schema.names.index(column), table.schema.field(column)
    return table.set_column(index, field, pa.array(values, field.type))


def without(wanted):
    """Leave out the last row for which that holds."""

    def change(table):
        row = int(np.flatnonzero(wanted(table.to_pydict()))[-1])
        return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])

    return change


def without_a_start(table):
    """Leave out the first draft."""
    sequence, start = (table[key].to_numpy() for key in ("sequence", "start"))
    return table.filter(pa.array((sequence != sequence[0]) | (start != start[0])))


def last_of_its_draft(rows):
    starts = np.array(rows["start"])
    return np.append(starts[1:] != starts[:-1], True)


def rank_one(rows):
    return np.array(rows["rank"]) == 1


FLIPPED = {
    "all accepted": all_set("accepted", np.ones_like),
    "all rejected": all_set("accepted", np.zeros_like),
    "all flipped": all_set("accepted", np.logical_not),
    "other tokens": all_set("draft_token", lambda token: (token + 1) % 9),
}
SHORTER = {"no first draft": without_a_start, "no last row": without(last_of_its_draft)}
TREES = {
    "all on the path": all_set("on_path", np.ones_like),
    "none on the path": all_set("on_path", np.zeros_like),
    "all flipped": all_set("on_path", np.logical_not),
    "other tokens": all_set("token", lambda token: (token + 1) % 9),
    "ever likelier": all_set("log_prob", lambda x: np.linspace(-9, -1, len(x), dtype=x.dtype)),
}
CASES = [
    *(
        (name, "lattice", what)
        for name in ("prompt_lookup", "ngram", "suffix", "shared", "network", "sparse")
        for what in (*FLIPPED, *SHORTER)
    ),
    *((name, "tree", what) for name in ("grown", "planted") for what in (*TREES, "no first draft")),
    ("grown", "tree", "no last child"),
    ("sparse", "lattice", "other targets"),
]
CHANGES = {
    **FLIPPED,
    **SHORTER,
    "no last child": without(rank_one),
    "other targets": all_set("target_token", lambda token: (token + 1) % 9),
}


def test_nothing_is_wrong_with_what_was_attached(whole):
    assert validate(whole) == []


@pytest.mark.parametrize(("name", "table", "what"), CASES)
def test_a_changed_drafter_is_refused(whole, tmp_path, name, table, what):
    copy = shutil.copytree(whole, tmp_path / "copy")
    change = (TREES if table == "tree" and what in TREES else CHANGES)[what]
    rewrite(copy / "drafters" / name, f"{table}/00001.parquet", change)
    problems = validate(copy)
    assert problems
    assert all(line.startswith(f"{copy}/drafters/{name}/{table}/00001") for line in problems)
    for _ in range(2):  # what is wrong is not remembered as fine
        with pytest.raises(TraceError, match=f"{name}/{table}/00001"):
            simkit.replay(load(copy, name), "fixed(3)")


@pytest.mark.parametrize("name", ["ngram", "shared"])
def test_what_a_rule_would_not_propose_is_refused_in_windows(whole, tmp_path, name):
    simkit.replay(stream(whole, name), "fixed(3)")
    copy = shutil.copytree(whole, tmp_path / "copy")
    rewrite(copy / "drafters" / name, "lattice/00001.parquet", SHORTER["no last row"])
    with pytest.raises(TraceError, match=f"{name}/lattice/00001.*not what"):
        simkit.replay(stream(copy, name), "fixed(3)")


@pytest.mark.parametrize("opened", [load, stream])
def test_what_a_rule_proposes_is_made_again_once(whole, tmp_path, monkeypatch, opened):
    calls, real = [], again.check_proposals
    monkeypatch.setattr(again, "check_proposals", lambda *a: calls.append(1) or real(*a))
    copy = shutil.copytree(whole, tmp_path / "copy")
    for folder in (whole, whole, copy):
        simkit.replay(opened(folder, "ngram"), "fixed(3)")
    assert len(calls) == 1
    simkit.replay(load("reference", "ngram"), "fixed(3)")  # the package's own
    simkit.replay(load(whole, "network"), "fixed(3)")
    assert len(calls) == 1
    monkeypatch.setattr(
        lazy_checks, "is_own", lambda rule: rule is not Suffix
    )  # another package's rule may change
    for _ in range(2):
        simkit.replay(opened(whole, "suffix"), "fixed(3)")
    assert len(calls) == 3


@pytest.mark.parametrize("name", bundled())
def test_bundled_rules_propose_what_is_bundled(name):
    outputs = load(name).sequences
    for drafter in (load(name, drafter) for drafter in load(name).drafters):
        given = drafter.path, drafter.manifest, lambda rows: outputs.take(list(rows))
        assert list(lazy_checks.check_proposals(*given)) == []


@pytest.mark.parametrize("name", ["prompt_lookup", "suffix", "shared"])
@pytest.mark.parametrize("what", ["all accepted", "all flipped"])
def test_a_rule_proposes_the_same_where_tokens_were_left_out(whole, tmp_path, name, what):
    thin(load(whole), tmp_path / "thin", bits=5, drop_tokens=True, drafters=[name, "network"])
    assert validate(tmp_path / "thin") == []
    rewrite(tmp_path / "thin" / "drafters" / name, "lattice/00000.parquet", FLIPPED[what])
    assert validate(tmp_path / "thin")


def test_an_eos_is_compared_where_other_tokens_were_left_out(whole, tmp_path):
    folder = tmp_path / "thin"
    thin(load(whole), folder, drop_tokens=True, drafters=["network"])
    drafter = load(folder, "network")
    eos = np.isin(drafter.lattice("draft_token"), drafter.eos_token_ids)
    assert eos.any()
    assert drafter.lattice("accepted")[eos].any()
    ends = all_set("accepted", lambda accepted: np.where(eos, ~accepted, accepted))
    rewrite(folder / "drafters/network", "lattice/00000.parquet", ends)
    assert any("the output's token" in line for line in validate(folder))


def test_a_drafter_whose_rule_is_not_known_here_is_not_proposed_again(whole, tmp_path):
    copy = shutil.copytree(whole, tmp_path / "copy")
    folder = copy / "drafters/ngram"
    rewrite(folder, "lattice/00001.parquet", SHORTER["no last row"])
    assert "not what ngram(least=1, most=2) proposes" in validate(copy)[0]
    edit(folder, spec="of_another_package()")
    assert read_manifest(folder).spec == "of_another_package()"
    assert validate(copy) == []
