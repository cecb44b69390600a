"""Where acceptance does not tell of a pair: verbatim loops in outputs, and a model beside itself.

Small models that decode greedily fall into repeating themselves, token for token. A draft then
accepts token after token, and acceptance tells of the loop rather than of the pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from traces import same_prompts
from traces.bundle import LADDER_DRAFTS, LADDER_TARGET
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.trace import Trace

LONGEST = 64  # tokens of a round
TIMES = 2  # rounds behind the first, all of them verbatim
LEAST = 8  # repeated tokens, however short the round
MUCH = 0.1  # of the positions, from which on it is said
_AT_ONCE = 2**20  # tokens that are looked at together
_PROMPTS = 2**16  # that are compared with each other
_LOOKED_AT = 2**17  # tokens of evenly spread outputs that stand for a longer trace


class Looping(NamedTuple):
    """How much of the outputs lies in loops.

    Attributes:
        outputs: that lie in a loop for a tenth of their tokens or more.
        looked_at: outputs that were looked at: all, or some of a long trace.
        share: of their positions.
    """

    outputs: int
    looked_at: int
    share: float

    @property
    def remark(self) -> str:
        """What a reader of acceptance and speeds must know; empty where little is in loops."""
        if self.share < MUCH:
            return ""
        return (
            f"{self.outputs:,} of {self.looked_at:,} outputs repeat themselves word for word"
            f" ({self.share:.0%} of positions): acceptance there is that of repetition"
        )


def looping(trace: Trace, most: int | None = _LOOKED_AT) -> Looping | None:
    """How much of a trace's outputs lies in loops; None where no output is known.

    Args:
        trace: of any kind; an attached drafter has the outputs of its recording.
        most: tokens to look at, of outputs spread evenly over the trace; None: all.
    """
    recording = trace.recording or trace
    table = trace.sequences
    if not recording.manifest.drafter.known_outputs or "output_tokens" not in table.column_names:
        return None
    lengths = table["n_output"].to_numpy().astype(np.int64)
    step = 1 if most is None else max(1, -(-int(lengths.sum()) // most))
    chosen = table["output_tokens"].take(np.arange(0, len(lengths), step))
    tokens = chosen.combine_chunks().flatten().to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths[::step])])
    if not len(tokens):
        return None
    rows = np.concatenate([[0], np.cumsum(in_loop(tokens, offsets))])
    shares = np.diff(rows[offsets]) / np.maximum(lengths[::step], 1)
    return Looping(int((shares >= MUCH).sum()), len(shares), float(rows[-1] / len(tokens)))


def remarks_of(trace: Trace, drafters: Collection[str] | None = None) -> list[str]:
    """What a reader of a trace must know: its import, its models, prompts that repeat and loops.

    Args:
        trace: of any kind.
        drafters: see `drafts_made_of`.
    """
    notes = trace.manifest.source.notes if trace.manifest.source else ()
    models = beside_itself(trace.manifest), drafts_made_of(trace, drafters)
    said = [*notes, *models, again(trace), *_of_loops(trace)]
    return [one for one in said if one]


def again(trace: Trace) -> str:
    """What to say where prompts were recorded several times; else nothing."""
    table = trace.sequences.slice(0, _PROMPTS)
    if not {*same_prompts.COLUMNS} <= {*table.column_names}:
        return ""
    told = same_prompts.keys(table)
    repeated = len(told) - len(np.unique(told))
    if not repeated:
        return ""
    return (
        f"{repeated:,} of {len(told):,} prompts repeat an earlier one: intervals, which take"
        " prompts for independent, are too narrow"
    )


def beside_itself(manifest: Manifest) -> str:
    """What to say where target and draft have the same weights; else nothing."""
    target, draft = manifest.target, manifest.draft
    if target is None or draft is None or target.weights_sha256 != draft.weights_sha256:
        return ""
    if manifest.sampler.temperature == manifest.sampler.q_temperature:
        return "draft and target are the same model: every token is accepted"
    return "draft and target are the same model, at two temperatures"


def drafts_made_of(trace: Trace, drafters: Collection[str] | None = None) -> str:
    """What to say where drafts are the target itself, rounded or in part; else nothing.

    Args:
        trace: of a drafter; or a recording without a draft of its own, whose drafters are named.
        drafters: of these alone; None: of all.
    """
    of: dict[str, list[str]] = {}
    for manifest in _with_drafters(trace, trace.drafters if drafters is None else drafters):
        if manifest.draft and (words := made_of(manifest)):
            of.setdefault(words, []).append(manifest.draft.id.split("/")[-1])
    if not of:
        return ""
    each = "; ".join(f"{', '.join(names)} ({words})" for words, names in of.items())
    several = sum(map(len, of.values())) > 1
    kind = "not independent small models" if several else "not an independent small model"
    return f"made from the target, {kind}: {each}"


def made_of(manifest: Manifest) -> str:
    """What of the target a draft is made of, as far as that is known; else nothing."""
    target, draft = manifest.target, manifest.draft
    if target is None or draft is None or target.id != LADDER_TARGET:
        return ""
    return LADDER_DRAFTS.get(draft.id, "")


def _with_drafters(trace: Trace, drafters: Collection[str]) -> Iterator[Manifest]:
    yield trace.manifest
    if trace.manifest.kind == "target":
        for name in drafters:
            with suppress(TraceError):  # one that is not whole
                yield trace.with_drafter(name).manifest


def _of_loops(trace: Trace) -> list[str]:
    if trace.manifest.drafter.known_outputs and "output_tokens" not in trace.sequences.column_names:
        return ["outputs are read in windows: whether they repeat themselves was not looked at"]
    found = looping(trace)
    return [found.remark] if found and found.remark else []


def in_loop(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Which positions repeat a loop, (R,) bool.

    A position repeats at lag P if its token is that of P positions before, in the same output. A
    stretch of at least max(2 P, 8) such positions in a row is a loop of period P; P is at most 64.
    The first round, which repeats nothing, lies outside.

    Args:
        tokens: (R,) the outputs' tokens, prompt after prompt.
        offsets: (S + 1,), where prompts start.
    """
    found = np.zeros(len(tokens), bool)
    low, n = 0, len(offsets) - 1
    while low < n:
        high = int(np.searchsorted(offsets, offsets[low] + _AT_ONCE, side="right")) - 1
        high = min(n, max(low + 1, high))
        begin, end = int(offsets[low]), int(offsets[high])
        starts = np.repeat(offsets[low:high], np.diff(offsets[low : high + 1]))
        found[begin:end] = _repeats(tokens[begin:end], np.arange(begin, end) - starts)
        low = high
    return found


def _repeats(tokens: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The same of some outputs; `at`: 0-based positions in their outputs."""
    found = np.zeros(len(tokens), bool)
    for lag in range(1, min(LONGEST, int(at.max(initial=0))) + 1):
        same = np.zeros(len(tokens), bool)
        same[lag:] = (tokens[lag:] == tokens[:-lag]) & (at[lag:] >= lag)
        found |= _in_stretch(same, max(TIMES * lag, LEAST))
    return found


def _in_stretch(flags: np.ndarray, least: int) -> np.ndarray:
    """Of the true flags, those with at least so many in a row; (n,) bool."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2], edges[1::2]
    long = ends - begins >= least
    steps = np.zeros(len(flags) + 1, np.int8)
    steps[begins[long]], steps[ends[long]] = 1, -1
    return np.cumsum(steps[:-1], dtype=np.int8) > 0
