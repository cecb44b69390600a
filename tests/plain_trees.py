"""Draft trees and their policies, plainly: dicts of rank paths, one step after the other.

A made-up draft says what comes behind any prefix; each policy is written down from its description,
level by level, and shares no code with `simkit.trees` or `traces.trees`. `record` writes the trace
that a recorder would have made of the same draft, so that a replay can be held against `steps`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from traces import scores
from traces.manifest import Manifest
from traces.memory import Arrays
from traces.sampler import Sampler
from traces.trace import Trace

Path = tuple[int, ...]
ROOT: Path = ()


@dataclass(frozen=True)
class Toy:
    """A made-up draft; `kind` says how its probabilities are spread.

    "dyadic" ones are powers of 1/2, whose logarithms add up without rounding, so that many nodes
    are equally likely; "few" are shares of small whole numbers; "smooth" never tie.
    """

    seed: int
    vocab: int = 4
    kind: str = "dyadic"
    by_start: bool = False
    eos: tuple[int, ...] = (0,)

    def said(self, start: int, prefix: Path) -> tuple[tuple[int, float], ...]:
        """(token, log-probability as float32) of all tokens, the likeliest first."""
        return _said(self, start if self.by_start else 0, prefix)

    def scored(self, start: int, prefix: Path) -> float:
        """A made-up head's score of the last token of a prefix."""
        rng = np.random.default_rng([self.seed, start, 11, *prefix])
        return float(np.float16(rng.choice([0.25, 0.5, 0.9, 0.95, 1.0, rng.random()])))


@lru_cache(maxsize=50_000)
def _said(toy: Toy, start: int, prefix: Path) -> tuple[tuple[int, float], ...]:
    rng = np.random.default_rng([toy.seed, start, 7, *prefix])
    if toy.kind == "dyadic":
        chances = [1.0]
        while len(chances) < toy.vocab:
            chances += [chances.pop(int(rng.integers(len(chances)))) / 2] * 2
        q = rng.permutation(chances)
    elif toy.kind == "few":
        q = rng.integers(1, 4, toy.vocab).astype(float)
    else:
        q = rng.dirichlet(np.full(toy.vocab, 0.5)) + 1e-9
    log_prob = np.log(q / q.sum()).astype(np.float32)
    return tuple(sorted(enumerate(log_prob.tolist()), key=lambda said: (-said[1], said[0])))


@dataclass
class Start:
    """What can be drafted behind the first i - 1 tokens of an output, at most `room` levels."""

    toy: Toy
    output: Path
    i: int
    room: int
    _tokens: dict[Path, Path] = field(default_factory=lambda: {ROOT: ()})
    _total: dict[Path, float] = field(default_factory=lambda: {ROOT: 0.0})

    def children(self, node: Path, most: int) -> list[Path]:
        """The likeliest ones; none behind an EOS token, nor where T_max is reached."""
        text = self._tokens[node]
        if len(node) == self.room or (text and text[-1] in self.toy.eos):
            return []
        said = self.toy.said(self.i, (*self.output[: self.i - 1], *text))[:most]
        for rank, (token, log_prob) in enumerate(said):
            self._tokens[(*node, rank)] = (*text, token)
            self._total[(*node, rank)] = self._total[node] + log_prob
        return [(*node, rank) for rank in range(len(said))]

    def total(self, node: Path) -> float:
        """Summed log-probability from the root."""
        return self._total[node]

    def log_prob(self, node: Path) -> float:
        """Behind its parent."""
        text = self._tokens[node]
        said = dict(self.toy.said(self.i, (*self.output[: self.i - 1], *text[:-1])))
        return said[text[-1]]

    def entropy(self, node: Path) -> float:
        """Of what is said behind it, nats, as float32; NaN behind an EOS token."""
        text = self._tokens[node]
        if text and text[-1] in self.toy.eos:
            return math.nan
        said = self.toy.said(self.i, (*self.output[: self.i - 1], *text))
        return float(np.float32(-sum(math.exp(log_prob) * log_prob for _, log_prob in said)))

    def token(self, node: Path) -> int:
        """The last known token of the root, which may be the prompt's."""
        return (1, *self.output[: self.i - 1], *self._tokens[node])[-1]

    def score(self, node: Path) -> float:
        """What a made-up head says of its token, a float16; of an EOS token nothing."""
        text = self._tokens[node]
        if text and text[-1] in self.toy.eos:
            return math.nan
        prefix = (*self.output[: self.i - 1], *text)
        return self.toy.scored(self.i if self.toy.by_start else 0, prefix)

    def is_output(self, node: Path) -> bool:
        """Whether it and all before it are the output's tokens."""
        text = self._tokens[node]
        return self.output[self.i - 1 :][: len(text)] == text

    def own(self, width: int, levels: int) -> Path:
        """The ranks of the output's tokens, as far as they are among the first `width`."""
        node = ROOT
        while len(node) < levels:
            hit = [child for child in self.children(node, width) if self.is_output(child)]
            if not hit:
                break
            node = hit[0]
        return node


def with_scores(trace: Trace, study: Study, name: str = "acceptance_head") -> Trace:
    """The trace with a made-up head's scores of all nodes that the draft was asked behind."""
    begin, values = trace.offsets("tree"), np.full(trace.rows("tree"), np.nan, np.float32)
    parent, rank = trace.column("tree", "parent"), trace.column("tree", "rank")
    asked = ~np.isnan(trace.column("tree", "draft_entropy"))
    for row, start in enumerate(study.starts()):
        paths: list[Path] = []
        for m in range(begin[row], begin[row + 1]):
            above = int(parent[m])
            paths.append(ROOT if above < 0 else (*paths[above], int(rank[m])))
            if paths[-1] == ROOT or asked[m]:
                start.children(paths[-1], study.width)
            if asked[m]:
                values[m] = start.score(paths[-1])
    return scores.attach(trace, name, scores.NodeScores(values))


class Done(NamedTuple):
    """One draft.

    Attributes:
        asked: of each pass of the draft, the nodes that it is given.
        drafted: how many nodes it proposed.
        verified: those that the target is given, the root apart; all nodes of a fixed tree, even
            such as have no token.
        decisions: that were asked for on the way, whether to go on.
    """

    asked: list[list[Path]]
    drafted: int
    verified: set[Path]
    decisions: int = 0


def best(start: Start, nodes: Iterable[Path], most: int) -> list[Path]:
    """The likeliest nodes; of equal ones that of the lower level, then of the earlier path."""
    return sorted(nodes, key=lambda node: (-start.total(node), len(node), node))[:most]


def beams(start: Start, top_k: int, levels: int, nodes: int) -> Done:
    """EAGLE-2."""
    asked, pool, beam = [], set(), [ROOT]
    for _ in range(levels):
        found = {node: start.children(node, top_k) for node in beam}
        new = [child for children in found.values() for child in children]
        if not new:
            break
        asked.append([node for node in beam if found[node]])
        pool |= set(new)
        beam = best(start, new, top_k)
    return Done(asked, len(pool), set(best(start, pool, nodes)))


def fixed(start: Start, paths: Sequence[Path]) -> Done:
    """The same rank paths in every step, as far as T_max leaves levels."""
    there = {path for path in paths if len(path) <= start.room}
    inner = {path[:-1] for path in there}
    levels = 1 + max(map(len, inner), default=-1)
    asked = [sorted(path for path in inner if len(path) == level) for level in range(levels)]
    return Done(asked, len(there), there)


def best_first(start: Start, budget: int, least: float, top_k: int, depth: int) -> Done:
    """The likeliest nodes of all, if they are likely enough."""
    floor = math.log(least) if least else -math.inf
    asked, pool, front = [], set(), [ROOT]
    chosen: list[Path] = []
    for level in range(depth):
        found = {node: start.children(node, top_k) for node in front}
        new = [child for children in found.values() for child in children]
        if not new:
            break
        asked.append([node for node in front if found[node]])
        pool |= set(new)
        likely = [node for node in pool if start.total(node) >= floor]
        chosen = best(start, likely, budget)
        front = [node for node in chosen if len(node) == level + 1]
    return Done(asked, len(pool), set(chosen))


def all_paths(width: int, depth: int) -> list[Path]:
    """Every rank path of so many levels."""
    levels = (itertools.product(range(width), repeat=level) for level in range(1, depth + 1))
    return [path for level in levels for path in level]


def most_taken(starts: Sequence[Start], budget: int, width: int, depth: int) -> list[Path]:
    """Sequoia by paths: those that the output takes most often."""
    owns = [start.own(width, depth) for start in starts]
    taken = Counter(own[:level] for own in owns for level in range(1, min(len(own), depth) + 1))
    return sorted(all_paths(width, depth), key=lambda p: (-taken[p], len(p), p))[:budget]


def most_worth(starts: Sequence[Start], budget: int, width: int, depth: int) -> list[Path]:
    """Sequoia by ranks: those with the highest product of their ranks' acceptance rates.

    A rate is over all nodes of the output that have children.
    """
    taken, tried = Counter(), 0
    for start in starts:
        own = start.own(width, depth)
        taken.update(own)
        nodes = (own[:level] for level in range(min(len(own) + 1, depth)))
        tried += sum(bool(start.children(node, width)) for node in nodes)
    rates = [taken[rank] / max(1, tried) for rank in range(width)]

    def worth(path: Path) -> float:
        found = 1.0
        for rank in path:
            found *= rates[rank]
        return found

    return sorted(all_paths(width, depth), key=lambda p: (-worth(p), len(p), p))[:budget]


def _eagle2(policy: Any, study: Study) -> Callable[[Start], Done]:
    levels = policy.num_steps or policy.max_draft_len or policy.depth + 1
    nodes = policy.max_total_draft_tokens or (policy.num_draft_tokens or policy.total) - 1
    return lambda start: beams(start, policy.top_k, levels, nodes)


def _sequoia(policy: Any, study: Study) -> Callable[[Start], Done]:
    depth = min(policy.depth or study.depth, study.depth)
    fit = {"paths": most_taken, "ranks": most_worth}[policy.by]
    paths = fit(study.starts(), policy.budget, study.width, depth)
    return lambda start: fixed(start, paths)


PLAIN: dict[str, Callable[[Any, Study], Callable[[Start], Done]]] = {
    "eagle2": _eagle2,
    "static": lambda policy, study: lambda start: fixed(start, policy.paths),
    "best_first": lambda policy, study: (
        lambda start: best_first(start, policy.budget, policy.least, policy.top_k, policy.depth)
    ),
    "sequoia": _sequoia,
}
"""What each policy does at a start, by its name; those that exit are in `plain_exits`."""


@dataclass(frozen=True)
class Study:
    """Outputs, and what was recorded of the draft behind each of their starts.

    Attributes:
        toy: the draft.
        outputs: at least one token each.
        t_max: T_max.
        shapes: specs; of each, what its policy asks for is recorded.
        width: children of each node.
        depth: of the deepest shape.
    """

    toy: Toy
    outputs: tuple[Path, ...]
    t_max: int
    shapes: tuple[str, ...]
    width: int
    depth: int

    def start(self, output: Path, i: int) -> Start:
        """At position i of an output."""
        return Start(self.toy, output, i, self.t_max - i)

    def starts(self) -> list[Start]:
        """All of them, in order."""
        return [self.start(y, i) for y in self.outputs for i in range(1, len(y) + 1)]


class Step(NamedTuple):
    """One step, as `simkit.trees.TreeSteps` has it; `widths` without zeros at its end."""

    sequence: int
    start: int
    drafted: int
    verified: int
    accepted: int
    emitted: int
    widths: tuple[int, ...]
    decisions: int


def steps(policy: Any, study: Study, first: int) -> list[Step]:
    """Decode every output with a policy, whose name `PLAIN` has."""
    return decoded(PLAIN[policy.name](policy, study), study, first)


def decoded(draft: Callable[[Start], Done], study: Study, first: int) -> list[Step]:
    """Decode every output with what is drafted at each start."""
    found = []
    for sequence, output in enumerate(study.outputs):
        i = first
        while i <= len(output):
            start = study.start(output, i)
            done = draft(start)
            node = ROOT
            while True:
                hit = [c for c in start.children(node, study.width) if start.is_output(c)]
                if not hit or hit[0] not in done.verified:
                    break
                node = hit[0]
            ended = bool(node) and start.token(node) in study.toy.eos
            emitted = len(node) + (not ended and i + len(node) <= len(output))
            widths = tuple(map(len, done.asked))
            counts = done.drafted, len(done.verified), len(node), emitted
            found.append(Step(sequence, i, *counts, widths, done.decisions))
            i += emitted
    return found


def record(study: Study, policies: Sequence[Any], **more: Any) -> Trace:
    """The trace of a study.

    Args:
        study: what is recorded.
        policies: those of `PLAIN` whose nodes its shapes mean.
        more: of the manifest.
    """
    draft = [PLAIN[policy.name](policy, study) for policy in policies]
    names = ("sequence", "start", "node", "parent", "depth", "rank", "token", "log_prob", "on_path",
             "draft_entropy", "draft_top1_prob")  # fmt: skip
    rows: list[tuple] = []
    for sequence, output in enumerate(study.outputs):
        for i in range(1, len(output) + 1):
            start = study.start(output, i)
            rows += [(sequence, i, *row) for row in _tree(study, start, [d(start) for d in draft])]
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)) if rows else {
        name: np.zeros(0, bool if name == "on_path" else np.int32) for name in names
    }  # fmt: skip
    for name in ("log_prob", "draft_entropy", "draft_top1_prob"):
        columns[name] = columns[name].astype(np.float32)
    lengths = [len(output) for output in study.outputs]
    manifest = Manifest(
        max_draft=study.depth,
        max_new_tokens=study.t_max,
        kind="tree",
        shapes=study.shapes,
        width=study.width,
        sampler=more.pop("sampler", Sampler()),
        eos_token_ids=study.toy.eos,
        batch_size=len(lengths),
        n_prompts=len(lengths),
        complete=True,
        **more,
    )
    given = {
        "sequence": np.arange(len(lengths)),
        "n_output": np.array(lengths),
        "output_tokens": [list(output) for output in study.outputs],
        "prompt_tokens": [[1] * (2 + s) for s in range(len(lengths))],
        "finish_reason": ["eos" if y[-1] in study.toy.eos else "length" for y in study.outputs],
    }
    return Trace(manifest, Arrays(manifest, given, {"tree": columns}, {"tree": len(rows)}))


def _tree(study: Study, start: Start, drafts: list[Done]) -> list[tuple]:
    """The rows of one tree behind its (sequence, start): what drafts ask for, and the output's."""
    wanted = {node for done in drafts for nodes in done.asked for node in nodes}
    level, order, number = [ROOT], [ROOT], {ROOT: 0}
    asked = set()
    for depth in range(study.depth):
        grown = [n for n in level if n in wanted or start.is_output(n)]
        level = [c for node in grown for c in start.children(node, study.width)]
        asked |= {node[:-1] for node in level if len(node) == depth + 1}
        number |= {node: len(order) + k for k, node in enumerate(level)}
        order += level
    if len(order) == 1:
        return []
    rows: list[tuple] = []
    for node in order:
        top = math.exp(start.log_prob((*node, 0))) if node in asked else math.nan
        about = (
            (number[node[:-1]], len(node), node[-1], start.token(node), start.log_prob(node))
            if node
            else (-1, 0, 0, start.token(node), 0.0)
        )
        entropy = start.entropy(node) if node in asked else math.nan
        rows.append((number[node], *about, start.is_output(node), entropy, top))
    return rows
