"""Shapes of trees: which nodes are given children, level by level.

A shape is written as a spec, `eagle2(top_k=10, depth=7)`, `static([[0], [0, 0], [1]])`,
`best_first(60)`; ranges name several. A recording holds every node that one of its shapes can give
children to, and those on the output's path, as deep as the deepest of the shapes: all that any
fixed set of rank paths needs, within that depth and width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from traces import specs
from traces.errors import DrafterError
from traces.kernels import compiled
from traces.registry import suggest
from traces.trees.forest import NONE, Forest, best_children

DEEPEST, WIDEST, MOST_NODES = 64, 64, 4096
_MOST_SHAPES = 1000
RankPath = tuple[int, ...]


class Shape(ABC):
    """A frozen dataclass.

    Attributes:
        name: the word that starts its spec.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def levels(self) -> int:
        """The deepest level of its nodes; the root's is 0."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The most children that a node of it has."""

    @abstractmethod
    def begin(self, trees: int) -> np.ndarray:
        """What it carries from level to level, of so many trees."""

    @abstractmethod
    def mark(self, trees: Forest, level: int, carried: np.ndarray, marks: np.ndarray) -> None:
        """Mark the nodes of a level that it gives children.

        Called for level 0, then 1, …; the children of the level before are there, those of every
        shape among them.

        Args:
            trees: so far.
            level: of the nodes.
            carried: see `begin`; changed.
            marks: (S, M) bool, to set.
        """

    def holds(self, other: Shape) -> bool:
        """Whether every node that the other shape gives children, this one does too."""
        return self == other


@dataclass(frozen=True)
class Beams(Shape):
    """EAGLE-2's: of each level, the `top_k` likeliest nodes get `top_k` children each.

    Source: EAGLE-2 (arXiv 2406.16858), section 4.1, and its code.

    Attributes:
        top_k: nodes of a beam, and children of each.
        depth: levels below the first, as EAGLE counts them: level 1 is the root's children.
    """

    name: ClassVar[str] = "eagle2"
    top_k: int = 10
    depth: int = 7

    def __post_init__(self) -> None:
        check_whole(self, "top_k", 1, WIDEST)
        check_whole(self, "depth", 0, DEEPEST - 1)

    @property
    def levels(self) -> int:
        """See `Shape`."""
        return self.depth + 1

    @property
    def width(self) -> int:
        """See `Shape`."""
        return self.top_k

    def begin(self, trees: int) -> np.ndarray:
        """The beam of the level before, by tree; first how many nodes it has."""
        return np.zeros((trees, 1 + self.top_k), np.int32)

    def mark(self, trees: Forest, level: int, carried: np.ndarray, marks: np.ndarray) -> None:
        """See `Shape`."""
        if level < self.levels:
            _mark_beams(trees, level, self.top_k, carried, marks)

    def holds(self, other: Shape) -> bool:
        """See `Shape`: beams of fewer nodes may hold others, shallower ones do not."""
        return isinstance(other, Beams) and other.top_k == self.top_k and other.depth <= self.depth


@dataclass(frozen=True)
class Paths(Shape):
    """A fixed set of rank paths, the same in every step (Medusa, SpecInfer, Sequoia).

    Attributes:
        paths: rank paths from the root, `[2, 0]` is the likeliest child of its third likeliest one;
            those that lead to them belong to it.
    """

    name: ClassVar[str] = "static"
    paths: tuple[RankPath, ...]

    def __post_init__(self) -> None:
        check_paths(self.paths)

    @property
    def levels(self) -> int:
        """See `Shape`."""
        return max(map(len, self.paths))

    @property
    def width(self) -> int:
        """See `Shape`."""
        return 1 + max(map(max, self.paths))

    @cached_property
    def trie(self) -> np.ndarray:
        """The node that each node's child of a rank is, (N + 1, width) int32; -1 where it has none.

        Node 0 is the root; others are in order of depth, then of their paths.
        """
        ordered = [(), *sorted(self.paths, key=lambda path: (len(path), path))]
        number = {path: k for k, path in enumerate(ordered)}
        found = np.full((len(ordered), self.width), NONE, np.int32)
        for path in ordered[1:]:
            found[number[path[:-1]], path[-1]] = number[path]
        return found

    def begin(self, trees: int) -> np.ndarray:
        """The node of each tree that stands for a node of the trie, -1 where there is none."""
        found = np.full((trees, len(self.trie)), NONE, np.int32)
        found[:, 0] = 0
        return found

    def mark(self, trees: Forest, level: int, carried: np.ndarray, marks: np.ndarray) -> None:
        """See `Shape`."""
        if level < self.levels:
            _mark_paths(trees, level, self.trie, carried, marks)

    def holds(self, other: Shape) -> bool:
        """See `Shape`: so do parts of it."""
        return isinstance(other, Paths) and inner(other.paths) <= inner(self.paths)


@dataclass(frozen=True)
class BestFirst(Shape):
    """The likeliest nodes of all, as far as there is any that is likely enough.

    Source: DDTree on parallel drafters, and the trees of suffix decoding.

    Attributes:
        budget: nodes, the root apart.
        least: lowest probability of a node given the root.
        top_k: children of a node that are looked at.
        depth: levels.
    """

    name: ClassVar[str] = "best_first"
    budget: int = 60
    least: float = 0.0
    top_k: int = 10
    depth: int = 8

    def __post_init__(self) -> None:
        check_whole(self, "budget", 1, MOST_NODES)
        check_whole(self, "top_k", 1, WIDEST)
        check_whole(self, "depth", 1, DEEPEST)
        if isinstance(self.least, bool) or not 0 <= self.least <= 1:
            raise DrafterError(f"{self.name}: least must be from 0 to 1, not {self.least!r}")

    @property
    def levels(self) -> int:
        """See `Shape`."""
        return self.depth

    @property
    def width(self) -> int:
        """See `Shape`."""
        return self.top_k

    def begin(self, trees: int) -> np.ndarray:
        """Nothing is carried."""
        return np.zeros((trees, 0), np.int32)

    def mark(self, trees: Forest, level: int, carried: np.ndarray, marks: np.ndarray) -> None:
        """See `Shape`."""
        if level < self.levels:
            least = float(np.log(self.least)) if self.least > 0 else -np.inf
            _mark_best(trees, level, self.budget, self.top_k, least, marks)

    def holds(self, other: Shape) -> bool:
        """See `Shape`: smaller ones nest in it."""
        return (
            isinstance(other, BestFirst)
            and other.top_k == self.top_k
            and other.depth <= self.depth
            and other.budget <= self.budget
            and other.least >= self.least
        )


SHAPES: dict[str, type[Shape]] = {cls.name: cls for cls in (Beams, Paths, BestFirst)}


def parse(text: str) -> Shape:
    """The shape of a spec without ranges.

    Raises:
        DrafterError: it cannot be read, or an argument is wrong.
    """
    (found,) = _of(text, ranges=False)
    return found


def expand(texts: Iterable[str]) -> list[Shape]:
    """The shapes of specs, whose arguments may be ranges; each once.

    Raises:
        DrafterError: see `parse`; or there are more than can be recorded.
    """
    found = list(dict.fromkeys(shape for text in texts for shape in _of(text, ranges=True)))
    if len(found) > _MOST_SHAPES:
        raise DrafterError(f"--tree means more than {_MOST_SHAPES} shapes together")
    return found


def _of(text: str, ranges: bool) -> list[Shape]:
    spec = specs.parse(text, DrafterError)
    if spec.name not in SHAPES:
        raise DrafterError(f"{text.strip()} is no shape of a tree ({suggest(spec.name, SHAPES)})")
    if spec.ranges() and not ranges:
        raise DrafterError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    if np.prod([values.count for values in spec.ranges()], initial=1.0) > _MOST_SHAPES:
        raise DrafterError(f"{text.strip()} means more than {_MOST_SHAPES} shapes")
    return [specs.build(one, SHAPES[spec.name], DrafterError) for one in spec.expand()]


def text_of(shape: Shape) -> str:
    """The spec of a shape, in full."""
    return specs.render(shape.name, (), asdict(shape))  # type: ignore[call-overload]


def check_whole(shape: object, name: str, least: int, most: int) -> None:
    """Refuse an argument that is no whole number of a range.

    Raises:
        DrafterError: as said.
    """
    value = getattr(shape, name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        where = getattr(shape, "name", "")
        raise DrafterError(
            f"{where}: {name} must be a whole number from {least} to {most}, not {value!r}"
        )


def check_paths(paths: object) -> None:
    """Refuse what is no set of rank paths.

    Raises:
        DrafterError: as said; the message names the path.
    """
    if not isinstance(paths, tuple) or not paths:
        raise DrafterError("static: paths must be lists of ranks, such as [[0], [0, 0], [1]]")
    for path in paths:
        ranks = path if isinstance(path, tuple) else ()
        if not ranks or any(isinstance(r, bool) or not isinstance(r, int) for r in ranks):
            raise DrafterError(f"static: {_shown(path)} is no list of ranks such as [0, 2]")
        if len(ranks) > DEEPEST or not all(0 <= r < WIDEST for r in ranks):
            raise DrafterError(
                f"static: {_shown(path)}: ranks must be from 0 to {WIDEST - 1}, and at most"
                f" {DEEPEST} of them"
            )
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise DrafterError(f"static: the path {_shown(twice)} is named twice")
    orphan = next((path for path in paths if len(path) > 1 and path[:-1] not in set(paths)), None)
    if orphan is not None:
        raise DrafterError(
            f"static: {_shown(orphan)} is an orphan: {_shown(orphan[:-1])}, which leads to it, is"
            " not among the paths"
        )
    if len(paths) > MOST_NODES:
        raise DrafterError(f"static: at most {MOST_NODES} paths, not {len(paths)}")


def _shown(path: object) -> str:
    return str(list(path)) if isinstance(path, tuple) else str(path)


def inner(paths: Sequence[RankPath]) -> set[RankPath]:
    """The nodes that lead to these, the root among them."""
    return {path[:k] for path in paths for k in range(len(path))}


@compiled
def _mark_beams(
    trees: Forest, level: int, top_k: int, carried: np.ndarray, marks: np.ndarray
) -> None:
    """Step each tree's beam to a level, and mark it."""
    heads, out = np.zeros(top_k, np.int32), np.zeros(top_k, np.int32)
    for s in range(len(trees.size)):
        beam = carried[s, 1:]
        if level == 0:
            beam[0], found = 0, 1
        else:
            of_tree = trees.total[s], trees.first[s], trees.children[s]
            found = best_children(*of_tree, beam, carried[s, 0], top_k, heads, out)
            beam[:found] = out[:found]
        carried[s, 0] = found
        for b in range(found):
            marks[s, beam[b]] = True


@compiled
def _mark_paths(
    trees: Forest, level: int, trie: np.ndarray, carried: np.ndarray, marks: np.ndarray
) -> None:
    """Find the trie's nodes of a level in each tree, and mark those with children."""
    n, width = trie.shape
    for s in range(len(trees.size)):
        for k in range(n):
            here = carried[s, k]
            if here < 0:
                continue
            if level > 0 and trees.depth[s, here] == level - 1:
                for rank in range(min(width, trees.children[s, here])):
                    if trie[k, rank] >= 0:
                        carried[s, trie[k, rank]] = trees.first[s, here] + rank
            if trees.depth[s, here] == level and trie[k].max() >= 0:
                marks[s, here] = True


@compiled
def _mark_best(
    trees: Forest, level: int, budget: int, top_k: int, least: float, marks: np.ndarray
) -> None:
    """Mark the nodes of a level that are among the likeliest so far."""
    for s in range(len(trees.size)):
        size = trees.size[s]
        if level == 0:
            marks[s, 0] = True
            continue
        total = trees.total[s, 1:size]
        usable = total.copy()
        for k in range(size - 1):
            if trees.rank[s, k + 1] >= top_k:
                usable[k] = -np.inf
            parent = trees.parent[s, k + 1]
            if parent > 0 and usable[parent - 1] == -np.inf:
                usable[k] = -np.inf
        order = np.argsort(-usable, kind="mergesort")
        for k in order[:budget]:
            if trees.depth[s, k + 1] == level and usable[k] >= least and usable[k] > -np.inf:
                marks[s, k + 1] = True
