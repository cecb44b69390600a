"""What a claim is, and the registry that the papers' files fill."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np

from analysis.claims.evidence import Evidence
from analysis.claims.measure import measure, referred
from analysis.claims.verdict import BELOW_1, Allowed
from analysis.papers import PAPERS
from analysis.replays import Replayed
from analysis.speeds import factors, ratio
from analysis.stats import Estimate, clusters, compare
from traces.errors import UserError
from traces.registry import Registry

ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "SpecDecode-Bench")


class ClaimKind(StrEnum):
    """What a trace can do to a claim.

    A theorem follows from how things are defined, whatever the trace: its statistic is told, and no
    verdict is given. An example is a claim that something can happen: a trace that shows it is one,
    a trace that does not refutes nothing. A setting is what an engine does by default or shows as
    an example: its statistics are told, and no verdict is given, since nobody found it.
    """

    TESTED = "tested"
    EXAMPLE = "example"
    THEOREM = "theorem"
    SETTING = "setting"


class Part(NamedTuple):
    """One statistic of a claim.

    Attributes:
        what: its name; empty if the claim has only this one.
        found: ours.
        expected: what the claim predicts; None if it is only told.
        printed: the least and the greatest of the paper's values; None if it prints none.
    """

    what: str
    found: Estimate
    expected: Allowed | None
    printed: tuple[float, float] | None = None


Test = Callable[[Evidence], Sequence[Part]]


@dataclass(frozen=True)
class Claim:
    """An empirical claim of a paper.

    Attributes:
        name: of the function that tests it.
        paper: one of `PAPERS`, or of `ENGINES`, whose threads and docs stand for one.
        place: section, table, figure.
        says: the claim in our words.
        printed: the paper's value.
        statistic: its exact definition, the test's docstring.
        test: computes it.
        kind: see `ClaimKind`.
        theorem: of a theorem, what follows from what, and whether the claim is true by it.
        draft_model: whether it means a draft model of its own, see `Study.need_draft_model`.
        positions: whether its statistic is of single output positions, in any order, so that it can
            be asked of some of them.
    """

    name: str
    paper: str
    place: str
    says: str
    printed: str
    statistic: str
    test: Test
    kind: ClaimKind = ClaimKind.TESTED
    theorem: str = ""
    draft_model: bool = False
    positions: bool = False

    @property
    def measure(self) -> str:
        """What kind of number the statistic is: "ratio of speeds", "difference", …."""
        other = referred(self.statistic)
        return measure(CLAIMS[other].statistic if other else self.statistic)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What a table has of it, whatever a trace gives."""
        named = f"{self.name}: {self.measure}"
        return f"{self.paper}, {self.place}", self.says, named, self.printed


CLAIMS: Registry[Claim] = Registry("claim", UserError, "simkit.claims", lambda *_: False)
"""Claims by the names of their tests, which the decorator `claim` registers."""


def claims(only: Iterable[Claim] | None = None) -> list[Claim]:
    """All claims, paper by paper, then the engines'; those of other packages come last.

    Args:
        only: these instead, as they come.

    Raises:
        UserError: one of them is no claim.
    """
    if only is not None:
        chosen = list(only)
        for one in chosen:
            if not isinstance(one, Claim):
                raise UserError(f"claims must be a list of Claim objects, not {only!r:.40}")
        return chosen
    papers = list(dict.fromkeys([*PAPERS, *ENGINES, *(one.paper for one in CLAIMS.values())]))
    return sorted(CLAIMS.values(), key=lambda one: papers.index(one.paper))


def claim(
    paper: str,
    place: str,
    says: str,
    printed: str = "–",
    kind: ClaimKind = ClaimKind.TESTED,
    theorem: str = "",
    draft_model: bool = False,
    positions: bool = False,
) -> Callable[[Test], Test]:
    """Register a test under its name; its docstring defines the statistic.

    Args:
        paper: see `Claim`, as for place, says and printed.
        place: in the paper.
        says: the claim.
        printed: the paper's value; a dash if it prints none.
        kind: see `Claim`.
        theorem: see `Claim`; makes it one.
        draft_model: see `Claim`; on another program's data it then cannot be tested.
        positions: see `Claim`.

    Raises:
        UserError: there is a claim of that name.
    """
    which = ClaimKind.THEOREM if theorem else kind

    def add(test: Test) -> Test:
        name = test.__name__
        statistic = " ".join(inspect.cleandoc(test.__doc__ or "").split())
        about = (name, paper, place, says, printed, statistic)
        one = Claim(*about, test, which, theorem, draft_model, positions)
        CLAIMS.add(name, one, test)
        return test

    return add


def claims_of(paper: str, draft_model: bool = False) -> Callable[..., Callable[[Test], Test]]:
    """`claim` for a file of one paper's claims, with what most of them need."""
    return partial(claim, paper, draft_model=draft_model)


def passes(
    one: Replayed,
    other: Replayed,
    expected: Allowed,
    drafts: tuple[float, float],
    targets: tuple[float, float],
) -> list[Part]:
    """Draft passes, and target passes, of one ÷ those of the other.

    Args:
        one: a replay.
        other: that it is compared with.
        expected: of either ratio.
        drafts: the least and the greatest that the paper prints.
        targets: the same of target passes.
    """
    return [
        Part("draft passes", ratio(one, other, "draft_passes"), expected, drafts),
        Part("target passes", ratio(one, other, "steps"), expected, targets),
    ]


def fastest_of(runs: Mapping[str, Replayed], best: str, printed: Mapping[str, float]) -> list[Part]:
    """The speed of each rival over that of the setting which the paper finds best.

    Intervals hold for all rivals at once, so that many rivals do not refute a claim by chance.

    Args:
        runs: the settings, by name.
        best: that of the paper.
        printed: the paper's ratios by name; those it does not print are left out.
    """
    seconds = {name: run.total_s for name, run in runs.items()}
    found = compare.simultaneous(seconds, best, factors=factors(runs))
    ends = {name: (value, value) for name, value in printed.items()}
    return [Part(name, one, BELOW_1, ends.get(name)) for name, one in found.items()]


def depth_parts(
    by_depth: Mapping[str, np.ndarray],
    statistic: Callable[[np.ndarray], np.ndarray],
    expected: Allowed,
) -> list[Part]:
    """A statistic of drafts by depth: the prediction is about that outside of loops.

    Args:
        by_depth: see `Evidence.by_depth`, what counts first.
        statistic: from (..., 2 D) sums to (..., 1).
        expected: of what counts.
    """
    found = {name: clusters.bootstrap(sums, statistic)[0] for name, sums in by_depth.items()}
    predicted = (expected, None)
    return [
        Part(name, one, which) for (name, one), which in zip(found.items(), predicted, strict=True)
    ]
