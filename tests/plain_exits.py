"""Exits of EAGLE-2's beams, plainly; see `plain_trees`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from plain_trees import PLAIN, ROOT, Done, Path, Start, Step, Study, best, decoded

from simkit.costs import Linear
from simkit.policies.acceptance_fit import BINS, edges_of, isotonic

Stops = Callable[[int, list[Path], list[Path]], bool]


def until(
    start: Start, top_k: int, levels: int, nodes: int, asks: Callable[[int], bool], stops: Stops
) -> Done:
    """EAGLE-2's beams until a rule stops them, of the nodes that there are then the best.

    Behind the levels that it asks about, but where no further one is possible, the rule is told
    which level is the newest, the beam that has proposed it, and its own.
    """
    asked, pool, before, beam, decisions = [], set(), [], [ROOT], 0
    for level in range(min(levels, start.room)):
        if level and asks(level):
            decisions += 1
            if stops(level, before, beam):
                break
        found = {node: start.children(node, top_k) for node in beam}
        new = [child for children in found.values() for child in children]
        if not new:
            break
        asked.append([node for node in beam if found[node]])
        pool |= set(new)
        before, beam = beam, best(start, new, top_k)
    return Done(asked, len(pool), set(best(start, pool, nodes)), decisions)


def _svip(policy: Any, study: Study) -> Callable[[Start], Done]:
    def draft(start: Start) -> Done:
        def stops(level: int, before: list[Path], beam: list[Path]) -> bool:
            return math.sqrt(start.entropy(before[0])) > policy.h  # NaN: it goes on

        def asks(level: int) -> bool:
            return level % policy.every == 0

        return until(start, policy.top_k, policy.depth + 1, policy.total - 1, asks, stops)

    return draft


PLAIN["tree_svip"] = _svip


def _head(policy: Any, study: Study) -> Callable[[Start], Done]:
    """The acceptance head: in the paper all branches are judged, in its public code all lanes."""

    def draft(start: Start) -> Done:
        lanes: list[float] = []  # of the code: products by place, whoever stands there

        def rejected(node: Path) -> float:
            """1 - Π of the scores along a branch."""
            found = 1.0
            for level in range(len(node), 0, -1):
                found *= start.score(node[:level])
            return 1 - found

        def paper(level: int, before: list[Path], beam: list[Path]) -> bool:
            read = [node for node in before if not math.isnan(start.score(node))]
            return any(rejected(node) > policy.h for node in read)

        def code(level: int, before: list[Path], beam: list[Path]) -> bool:
            lanes[:] = lanes or [start.score(ROOT)] * policy.top_k
            for place, node in enumerate(beam):
                lanes[place] *= start.score(node[:-1])
            return all(1 - lane > policy.h for lane in lanes[: len(beam)])

        stops = {"paper": paper, "code": code}[policy.variant]
        args = policy.top_k, policy.depth + 1, policy.total - 1
        return until(start, *args, lambda level: level >= 2, stops)

    return draft


PLAIN["tree_acceptance_head"] = _head


class Seen(NamedTuple):
    """A level of a tree whose beams go on as long as they can.

    Attributes:
        mass: probability of the beam that it leaves.
        nodes: of it and all levels before.
        next_width: of the pass behind it.
        next_nodes: with those that this pass would propose.
        held: whether those hold the output's token, and all levels before theirs.
        counts: whether the output goes on so far, and T_max allows a further level.
    """

    mass: float
    nodes: int
    next_width: int
    next_nodes: int
    held: bool
    counts: bool


def levels_of(start: Start, top_k: int, levels: int) -> Iterator[Seen]:
    """Every level but the deepest."""
    beam, nodes = [ROOT], 0
    own = start.own(10**6, levels)
    held, mass = True, 1.0
    for level in range(levels):
        found = {node: start.children(node, top_k) for node in beam}
        new = [child for children in found.values() for child in children]
        width = sum(map(bool, found.values()))
        held = held and own[: level + 1] in new and len(own) > level
        if level:
            room = min(start.room, len(start.output) - start.i + 1)
            yield Seen(mass, nodes, width, nodes + len(new), held, level < room)
        if not new:
            return
        nodes += len(new)
        beam = best(start, new, top_k)
        mass = sum(math.exp(start.total(node)) for node in beam)


class BestRate:
    """The rule at a rate: go on while the chance of a hit is worth the seconds of a level.

    The chance is fitted to the beams' probabilities outside of the prompt's fold.

    Args:
        policy: its arguments.
        study: of the outputs.
        cost: under which each level has a pass.
        first: position of each output's first step.
    """

    def __init__(self, policy: Any, study: Study, cost: Linear, first: int) -> None:
        self.policy, self.study, self.cost, self.first = policy, study, cost, first
        n = len(study.outputs)
        folds = min(policy.folds, max(2, n))
        self.fold = (np.random.default_rng(0).permutation(n) % folds).tolist()
        args = policy.top_k, policy.depth + 1
        self.seen = {
            (s, i): list(levels_of(study.start(y, i), *args))
            for s, y in enumerate(study.outputs)
            for i in range(1, len(y) + 1)
        }
        use = [(s, one) for (s, _), all_ in self.seen.items() for one in all_ if one.counts]
        self.edges = edges_of(np.array([one.mass for _, one in use]))
        count, hits = np.zeros((folds, BINS)), np.zeros((folds, BINS))
        for s, one in use:
            cell = np.searchsorted(self.edges, one.mass)
            for fold in set(range(folds)) - {self.fold[s]}:
                count[fold, cell] += 1
                hits[fold, cell] += one.held
        self.chance = [isotonic(*pair) for pair in zip(count, hits, strict=True)]

    def steps(self, rate: float) -> list[Step]:
        """The steps if a level must gain so many tokens a second."""

        def draft(start: Start) -> Done:
            sequence = self.study.outputs.index(start.output)
            levels = self.seen[sequence, start.i]

            def stops(level: int, before: list[Path], beam: list[Path]) -> bool:
                seen = levels[level - 1]
                cell = np.searchsorted(self.edges, seen.mass)
                chance = self.chance[self.fold[sequence]][cell]
                return chance < rate * self._price(seen, self._context(sequence, start.i), level)

            policy = self.policy
            args = policy.top_k, policy.depth + 1, policy.total - 1
            return until(start, *args, lambda level: True, stops)

        return decoded(draft, self.study, self.first)

    def attained(self, found: list[Step]) -> float:
        """Tokens a second of some steps."""
        tokens = sum(max(0, len(y) + 1 - self.first) for y in self.study.outputs)
        spent_s = sum(map(self._spent_s, found))
        return tokens / spent_s if spent_s else 0.0

    def fixed_point(self) -> list[Step]:
        """The steps at the rate that they attain; the fastest ones if that is not reached."""
        rate, tried = 0.0, {}
        for _ in range(20):
            found = self.steps(rate)
            reached = self.attained(found)
            if abs(reached - rate) <= 1e-9 * reached or reached in tried:
                return found
            tried[reached] = found
            rate = reached
        return tried[max(tried)]

    def _context(self, sequence: int, i: int) -> int:
        return 2 + sequence + i - 1  # prompts as `plain_trees.record` makes them

    def _price(self, seen: Seen, context: int, level: int) -> float:
        wanted = self.policy.total - 1
        more = self._verify_s(min(seen.next_nodes, wanted), context)
        more -= self._verify_s(min(seen.nodes, wanted), context)
        return self._pass_s(max(seen.next_width, 1), context + level) + more + self.cost.policy_s

    def _spent_s(self, step: Step) -> float:
        context = self._context(step.sequence, step.start)
        passes = sum(self._pass_s(w, context + level) for level, w in enumerate(step.widths))
        rest = self.cost.overhead_s + step.decisions * self.cost.policy_s
        return passes + self._verify_s(step.verified, context) + rest

    def _pass_s(self, width: int, context: int) -> float:
        return float(self.cost.draft_block(np.array(width), np.array(context)))

    def _verify_s(self, nodes: int, context: int) -> float:
        return float(self.cost.verify(np.array(nodes + 1), np.array(context)))
