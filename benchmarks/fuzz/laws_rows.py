"""Laws of recordings: their rows, times, scores, lists of files and manifests, see `laws`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.fuzz import alter, judge
from benchmarks.fuzz.edit import Change, Edit
from benchmarks.fuzz.judge import FaultError, Verdict
from benchmarks.fuzz.laws import (
    BRANCHES,
    INF,
    LATENCY,
    LOUD,
    NAN,
    POSITIONS,
    SCORES,
    SEQUENCES,
    Law,
    accepted,
    broken,
    calm,
    dropped_last,
    eos_within,
    field,
    inner,
    moved_last,
    order,
    other,
    put,
    rejected,
    runs,
    same,
    shortened,
    swapped,
    swapped_runs,
)
from traces import validation_cache


def branch_of_accepted(rng: random.Random, edit: Edit) -> None:
    """A branch moves to an accepted position before it, where none may be."""
    position, sequence = edit.column(POSITIONS, "position"), edit.column(POSITIONS, "sequence")
    good = edit.column(POSITIONS, "accepted")
    there = {(s, p) for s, p in zip(sequence[good].tolist(), position[good].tolist(), strict=True)}
    found = runs(edit, BRANCHES, "position")
    of = list(
        zip(*(edit.column(BRANCHES, c).tolist() for c in ("sequence", "position")), strict=True)
    )
    chosen = rng.choice([r for r in found if (of[r[0]][0], of[r[0]][1] - 1) in there])
    n, before = edit.table(BRANCHES).num_rows, int(chosen[0])
    edit.take(BRANCHES, [*range(before), before, *range(before, n)])
    edit.put(BRANCHES, "position", {before: of[before][1] - 1})


def eos_in_output(rng: random.Random, edit: Edit) -> None:
    """An EOS token stands within an output, in the sequences and on the path."""
    column = lambda of: edit.column(POSITIONS, of)  # noqa: E731
    row = rng.choice(np.flatnonzero(inner(column)).tolist())
    edit.put(POSITIONS, "target_token", {row: 0})
    sequence, position = int(column("sequence")[row]), int(column("position")[row])
    tokens = edit.table(SEQUENCES)["output_tokens"][sequence].as_py()
    tokens[position - 1] = 0
    edit.put(SEQUENCES, "output_tokens", {sequence: tokens})


def listed(**values: Any) -> Change:
    """What the manifest says of the file of positions."""
    return lambda rng, edit: edit.manifest["files"][POSITIONS].update(values)


def _numbered(rng: random.Random, edit: Edit) -> None:
    """The last sequence of an import has another number, there and in its drafts."""
    for name in (SEQUENCES, "lattice/00000.parquet"):
        last = np.flatnonzero(edit.column(name, "sequence") == 4).tolist()
        edit.put(name, "sequence", dict.fromkeys(last, 6))


def _outside(rng: random.Random, edit: Edit) -> None:
    """A file beside the trace is listed as one of it."""
    shutil.copyfile(edit.folder / LATENCY, edit.folder.parent / "x.parquet")
    edit.manifest["files"]["../x.parquet"] = edit.manifest["files"][LATENCY]


def _scores_of_another(rng: random.Random, edit: Edit) -> None:
    table = edit.table(SCORES)
    text = table.schema.metadata[b"simkit"].replace(b'"trace": "', b'"trace": "0')
    edit._tables[SCORES] = table.replace_schema_metadata({b"simkit": text})


_TIMED = ("draft", "target")


def _passes(c: Callable[[str], np.ndarray]) -> np.ndarray:
    return np.isin(c("component").astype(str), _TIMED)


def _many(c: Callable[[str], np.ndarray]) -> np.ndarray:
    return (c("accept_prob") > 0.1) & (c("accept_prob") < 1) & (c("target_prob") > 0.1)


PATHS = {
    "rows stand in order": Law("greedy", swapped(POSITIONS)),
    "rows are as many as outputs have": Law("greedy", dropped_last(POSITIONS)),
    "positions count up": Law("greedy", put(POSITIONS, None, position=other("position"))),
    "target tokens are the outputs'": Law(
        "greedy", put(POSITIONS, inner, target_token=lambda r, c: 1 + c("draft_token")[r] % 9)
    ),
    "an EOS token ends an output": Law("greedy", eos_in_output),
    "accepted tokens are equal": Law(
        "greedy", put(POSITIONS, accepted, draft_token=lambda r, c: 1 + c("target_token")[r] % 9)
    ),
    "rejected tokens differ": Law(
        "greedy", put(POSITIONS, rejected, draft_token=same("target_token"))
    ),
    "what is impossible is not accepted": Law(
        "greedy", put(POSITIONS, accepted, accept_prob=0.0, target_prob=0.0)
    ),
    "what is certain is accepted": Law(
        "sampled",
        put(POSITIONS, rejected, accept_prob=1.0, target_prob=lambda r, c: c("draft_prob")[r]),
    ),
    "accept_prob is p / q": Law(
        "sampled", put(POSITIONS, _many, accept_prob=lambda r, c: c("accept_prob")[r] / 2)
    ),
    "tokens are of the vocabulary": Law("greedy", put(POSITIONS, rejected, draft_token=(4096, -1))),
    "entropies are none below 0": Law(
        "greedy", put(POSITIONS, None, draft_entropy=(-1.0, NAN)), LOUD
    ),
    "probabilities are up to 1": Law("greedy", put(POSITIONS, None, overlap=(1.5, -0.5, NAN, INF))),
    "entropies are up to log V": Law(
        "greedy", put(POSITIONS, None, target_entropy=(9.0, INF, NAN))
    ),
    "the second is no likelier than the first": Law(
        "greedy", put(POSITIONS, lambda c: c("draft_top1_prob") < 0.4, draft_top2_prob=0.9)
    ),
    "H(q) is no more than H(q, p)": Law(
        "greedy", put(POSITIONS, lambda c: c("cross_entropy") < 4, draft_entropy=8.0), LOUD
    ),
}
BRANCH = {
    "depths count up": Law("greedy", put(BRANCHES, lambda c: c("depth") > 2, depth=other("depth"))),
    "branches are whole": Law("greedy", shortened(BRANCHES, "position")),
    "branches ascend": Law("greedy", swapped_runs(BRANCHES, "position")),
    "branches have a position": Law("greedy", moved_last(BRANCHES, "position")),
    "branches are of rejected tokens": Law("greedy", branch_of_accepted),
    "an EOS token ends a branch": Law("greedy", eos_within(BRANCHES, "position")),
    "branch tokens are of the vocabulary": Law(
        "greedy", put(BRANCHES, None, draft_token=(4096, -7))
    ),
    "values of branches are in range": Law(
        "greedy", put(BRANCHES, None, draft_entropy=(-1.0, NAN, 99.0)), LOUD
    ),
}
OUTPUTS = {
    "sequences count up": Law("lattice", _numbered),
    "n_prompt is that of the prompt": Law(
        "sampled", put(SEQUENCES, None, n_prompt=other("n_prompt"))
    ),
    "outputs have a reason to end": Law("lattice", put(SEQUENCES, None, finish_reason="tired")),
    "the reason is eos after an EOS": Law(
        "greedy",
        put(SEQUENCES, lambda c: c("finish_reason") == "length", finish_reason=("eos", "unknown")),
    ),
    "no output is beyond T_max": Law("lattice", field(max_new_tokens=11)),
    "prompts are no longer than a context": Law(
        "lattice", put(SEQUENCES, None, n_prompt=2**24 + 1, prompt_tokens=lambda r, c: [1] * 3)
    ),
}
TIMES = {
    "times are above 0": Law("greedy", put(LATENCY, None, seconds=(-1.0, 0.0, NAN, INF))),
    "components are known": Law("greedy", put(LATENCY, None, component=("x", "draft:", ""))),
    "passes have tokens": Law("greedy", put(LATENCY, _passes, tokens_in=(0, -1))),
    "contexts are none below 0": Law("greedy", put(LATENCY, None, context_len=-1)),
    "samples are there once": Law(
        "greedy", order(LATENCY, lambda rng, e: [*range(e.table(LATENCY).num_rows), 0])
    ),
    "times are those that were written": Law(
        "greedy", put(LATENCY, _passes, seconds=9.0), written={"sealed": False}
    ),
    "scores are probabilities": Law(
        "greedy", put(SCORES, None, score=(1.5, -0.5, NAN)), ("specdecpp",)
    ),
    "scores are of this trace": Law("greedy", _scores_of_another, ("specdecpp",), {"tied": False}),
    "each row has a score": Law("greedy", dropped_last(SCORES), ("specdecpp",)),
    "scores stand in order": Law("greedy", swapped(SCORES), ("specdecpp",)),
}
LISTED = {
    "hashes are those of the files": Law("greedy", calm, LOUD, {"hashed": False}),
    "hashes of branches are": Law(
        "greedy", put(BRANCHES, None, draft_entropy=0.0), written={"hashed": False}
    ),
    "hashes of times are": Law(
        "greedy", put(LATENCY, _passes, seconds=9.0), written={"hashed": False}
    ),
    "signatures are those of the text": Law("greedy", field(seed=77), written={"signed": False}),
    "sizes are those of the files": Law("greedy", listed(bytes=10**6)),
    "rows are those of the files": Law("greedy", listed(rows=7)),
    "T_max is that of the outputs": Law("greedy", field(max_new_tokens=300)),
    "Gamma is that of the branches": Law("greedy", field(max_draft=(5, 41))),
    "prompts are as many as listed": Law("greedy", field(n_prompts=(2, 4, 10**12))),
    "shards are all listed": Law(
        "drafted", lambda rng, e: e.manifest["files"].pop(rng.choice(e.names("branches")))
    ),
}
FIELDS = {
    name: Law("greedy", change)
    for name, change in {
        "counts are from 1": field(batch_size=0),
        "words are known": field(statistics="guessed"),
        "the coupling is known": field(coupling="none"),
        "bits are from 4 to 23": field(bits=(2, 99, -1)),
        "mix is a share": field(mix=(2.0, -0.5)),
        "columns are statistics": field(path_columns=["secret"]),
        "fields are of the kind": field(width=3),
        "a token is a pass on a path": field(draft_passes="draft"),
        "files lie within the trace": _outside,
        "fields are known": field(surprise=1),
        "fields are there": lambda rng, e: e.manifest.pop("max_draft"),
        "values are of their types": field(seed=("1", 1.5, True, None)),
        "the version is known": field(schema_version=(2, 0)),
        "recordings are complete": field(complete=False),
        "temperatures are none below 0": field(sampler={"temperature": -1.0}),
        "top_p is a share": field(sampler={"top_p": 0.0}),
        "greedy targets have greedy drafts": field(sampler={"draft_temperature": 1.0}),
    }.items()
}


def looked_before(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A trace that was looked at before is altered: what was remembered of it counts no more."""
    sound = base / "greedy"
    trace = Path(shutil.copytree(sound, work / "greedy"))
    with patch.object(validation_cache, "_SETTLED_NS", 0):
        if judge.replay(trace, None, *LOUD).out != judge.truth_of(sound, None, LOUD):
            raise FaultError("wrong number", "a copy gives other numbers")
        edit = Edit(trace)
        if rng.random() < 0.5:
            calm(rng, edit)
            edit.write(hashed=False)
        else:
            file = trace / rng.choice((POSITIONS, BRANCHES))
            file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
        ended = judge.replay(trace, None, *LOUD)
    return judge.told(ended, judge.truth_of(sound, None, LOUD))


FAMILIES = {
    "traces looked at before": looked_before,
} | {
    f"laws of {name}": broken(laws)
    for name, laws in {
        "paths": PATHS,
        "branches": BRANCH,
        "outputs": OUTPUTS,
        "times and scores": TIMES,
        "lists of files": LISTED,
        "manifests": FIELDS,
    }.items()
}
