"""What a policy is: a frozen dataclass whose state is a value passed through pure functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from simkit.errors import PolicyError
from simkit.policies.arguments import Checked, Numbered, Numbers, as_it_is
from traces.sampler import Sampler
from traces.specs import render

if TYPE_CHECKING:
    import numpy as np

    from simkit.drafters.layout import Layout
    from simkit.simulator.step_costs import Charge

State = tuple
"""A flat tuple of numbers, whose length and types never change.

It may hold numpy arrays where a rule remembers much: each state is used once, so a slot may fill
them in place.
"""

Row = tuple
"""The values of a policy's columns for one draft token: float32 values, held as Python floats."""

MAX_DRAFT = 40


class Outcome(NamedTuple):
    """What came of a step.

    Attributes:
        drafted: draft tokens paid for.
        proposed: of those, the ones sent to the target.
        accepted: of those, the ones accepted.
        ended: whether the last accepted token was an EOS, so that no bonus token followed.

    >>> outcome = simkit.policies.Outcome(drafted=4, proposed=4, accepted=4, ended=False)
    >>> simkit.policies.Heuristic().update((4,), outcome)  # all accepted: draft 2 more tokens
    (6,)
    """

    drafted: int
    proposed: int
    accepted: int
    ended: bool


class Setting(NamedTuple):
    """What a policy may be fitted to before a replay.

    What takes a replay to find is asked of it too.

    Attributes:
        layout: the trace, and what a step from each start sees.
        charge: the seconds of its steps; None without a cost.
        first: position of each sequence's first step.

    >>> from simkit.simulator.arguments import setting
    >>> where = setting("reference", "linear(draft_s=1, target_s=10)", "draft")
    >>> simkit.policies.PEARL().bind(where).window
    10
    """

    layout: Layout
    charge: Charge | None
    first: int

    def costs(self, policy: str) -> Charge:
        """The charge, for a policy that cannot do without.

        Raises:
            PolicyError: there is no cost.
        """
        if self.charge is None:
            raise PolicyError(f"{policy} needs times: give a cost")
        return self.charge

    def shortest(self, max_draft: int) -> np.ndarray:
        """The draft length at each start that makes each sequence's time shortest.

        Args:
            max_draft: longest draft, in tokens.

        Returns:
            (R,) int32, by on-path row; see `simkit.simulator.shortest_path`.

        Raises:
            PolicyError: there is no cost.
        """
        return self.costs("the shortest path").shortest(self.layout, max_draft)

    def spent_s(self, policy: Policy) -> float:
        """Seconds of all steps of a policy that is bound, prefill left out.

        Raises:
            PolicyError: there is no cost.
        """
        return self.costs(str(policy)).spent_s(policy)


class Policy(Checked, ABC):
    """Decides how many tokens to draft: `Sequential`, `Concurrent` or `Branching`.

    Attributes:
        name: the word that starts its spec.
        family: how it drafts and verifies, a module of `simkit.steps`.
        takes_turns: whether it drafts, then verifies; else both models run at the same time.
        overlaps: whether draft and target ever run at the same time.
        looks: whether it decides after what was drafted if it goes on; else no decision takes time.
        extra_passes: passes of the draft over each verified batch, 1 + γ tokens, which draft
            nothing; 0 or 1. Most programs need none: their draft has read its own tokens as it drew
            them.
        max_draft: the longest draft it may ask for, in tokens.
        head: name of the learned head that it calls; None if it calls none.
        lag: how many of the newest tokens a decision does without the head's scores of, 0 or 1: a
            head that judges a token from the state that has consumed it knows of it a pass later.
            With a lag, nothing may depend on the scores of the newest token but the next decision.
        needs_future: whether it must know which tokens will be accepted; only the simulator can
            tell it.
        binds_prompts_apart: of one that overrides `bind`: whether that takes nothing of a prompt's
            rows for other prompts, so that prompts can be replayed some at a time.

    >>> simkit.policies.parse("svip(h=0.4)").family
    'chain'
    """

    name: ClassVar[str]
    family: ClassVar[str]
    takes_turns: ClassVar[bool] = True
    overlaps: bool = False
    looks: bool = False
    extra_passes: int = 0
    max_draft: int
    head: str | None = None
    lag: int = 0
    needs_future: ClassVar[bool] = False
    binds_prompts_apart: ClassVar[bool] = False

    @property
    def timed_as(self) -> str:
        """The name under which costs have the time of its decisions."""
        return self.name

    @property
    def carried(self) -> Literal["sequence", "run"]:
        """How long state lasts: each sequence starts anew, or all of a run share it, ascending."""
        return "sequence"

    @property
    def like(self) -> Sequential | None:
        """A rule of chains that reads as much, whose time a decision takes if none was measured."""
        return None

    @abstractmethod
    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """Names of the columns that a row holds, in order.

        They are the trace's, or `score_column` of a head; scores by (start, depth) come last.

        Raises:
            PolicyError: the rule does not hold under this sampler.
        """

    def bind(self, setting: Setting) -> Policy:
        """The policy with what it takes from a trace and a cost; most take nothing.

        Raises:
            PolicyError: the setting lacks what it needs.
        """
        return self

    def remark(self, setting: Setting) -> str:
        """What a reader of its numbers should know of how it was fitted; nothing for most.

        Args:
            setting: with a cost.
        """
        return ""


class Grid(tuple[Policy, ...]):
    """Settings of one rule, which are swept, and tuned as one family.

    Attributes:
        spec: what the family is called.

    >>> from simkit.policies import Fixed, Grid
    >>> str(Grid([Fixed(2), Fixed(4)], "fixed(length=[2, 4])"))
    'fixed(length=[2, 4])'
    """

    spec: str

    def __new__(cls, policies: Iterable[Policy], spec: str) -> Grid:
        """Settings under a name."""
        made = super().__new__(cls, policies)
        made.spec = spec
        return made

    def __str__(self) -> str:
        return self.spec


class Concurrent(Policy):
    """Draft and target run at the same time, see `simkit.steps.concurrent`.

    >>> isinstance(simkit.policies.parse("pearl(window=4)"), simkit.policies.Concurrent)
    True
    """

    family = "concurrent"
    takes_turns = False


class Branching(Policy):
    """Drafts a tree, of which it has some nodes verified; see `simkit.trees`.

    >>> isinstance(simkit.policies.parse("eagle2(total=16)"), simkit.policies.Branching)
    True
    """

    family = "tree"


class Sequential(Policy):
    """Drafts, then verifies. Methods are pure: the state goes in and comes out.

    >>> simkit.policies.SVIP(h=0.4).trips((), depth=1, row=(0.25,))  # sqrt(0.25) > 0.4: stop
    (True, ())
    """

    family = "chain"

    @property
    def looks(self) -> bool:  # type: ignore[override]
        """See `Policy`."""
        return True

    @property
    def like(self) -> Sequential:
        """See `Policy`."""
        return self

    @abstractmethod
    def begin(self, sequence: int) -> State:
        """The state before the first step.

        Args:
            sequence: 0-based index of the sequence; of the first one, if state lasts a whole run.
        """

    @abstractmethod
    def limit(self, state: State, ahead: int) -> int:
        """The most tokens that the coming draft may have; the budget may cut it further.

        Args:
            state: after the step before.
            ahead: how many tokens will be accepted if the draft is long enough; -1 for a policy
                that does not declare that it needs the future.
        """

    @abstractmethod
    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """Whether drafting stops after this token. Called for every drafted token.

        Args:
            state: after the token before; at depth 1, the one that `limit` saw.
            depth: 1-based index of the token inside the draft.
            row: its values, see `columns`.
        """

    def proposed(self, state: State, drafted: int) -> int:
        """Of the drafted tokens, how many (the first ones) are sent to the target; all by default.

        Args:
            state: after the last drafted token.
            drafted: how many there are, maybe none.
        """
        return drafted

    @abstractmethod
    def update(self, state: State, outcome: Outcome) -> State:
        """The state after a step, also after one with an empty draft."""

    def calls(self, drafted: Any) -> Any:
        """Decisions that a step with so many drafted tokens pays for, by default as many.

        Takes and gives a number or an array.
        """
        return drafted


def chain_of(policy: Policy, why: str) -> Sequential:
    """A policy that drafts chains and takes turns with the target.

    Raises:
        PolicyError: it drafts trees, or while the target runs; `why` that does not do.
    """
    if isinstance(policy, Sequential):
        return policy
    does = "drafts trees" if policy.takes_turns else "drafts while the target verifies"
    raise PolicyError(f"{policy} {does}: {why}")


def score_column(head: str) -> str:
    """The column that holds a head's predicted acceptance.

    >>> simkit.policies.score_column("pacer")
    'score:pacer'
    """
    return f"score:{head}"


def stateless(params: Any, sequence: int) -> State:
    """`begin` of a policy without state."""
    return ()


def longest(params: Any, state: State, ahead: int) -> int:
    """`limit` of a policy whose drafts only `max_draft` bounds."""
    return params.max_draft


def never(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """`trips` of a policy that looks at no token."""
    return False, state


def whole(params: Any, state: State, drafted: int) -> int:
    """`proposed` of a policy that drops no token."""
    return drafted


def unchanged(params: Any, state: State, outcome: Outcome) -> State:
    """`update` of a policy without feedback."""
    return state


def every_token(params: Any, drafted: Any) -> Any:
    """`calls` of a policy that decides after every token."""
    return drafted


@dataclass(frozen=True)
class Slots:
    """A rule as module-level functions of numbers, which compile as they stand (numba).

    Each is the method of `Sequential` of the same name, with the parameters in place of `self`.

    >>> simkit.policies.Fixed(3).slots == simkit.policies.Slots()  # its draft's limit is its length
    True
    """

    begin: Callable[..., State] = stateless
    limit: Callable[..., int] = longest
    trips: Callable[..., tuple[bool, State]] = never
    proposed: Callable[..., int] = whole
    update: Callable[..., State] = unchanged
    calls: Callable[..., Any] = every_token


class NumericPolicy(Sequential, Numbered):
    """A policy whose rule is `Slots`: one definition, compiled in a replay, interpreted elsewhere.

    Attributes:
        slots: the rule.
        reads: names of the columns that a row holds, where no sampler changes them.
        unnamed: whether its spec writes the first argument without its name.

    >>> simkit.policies.Fixed(3).params
    FixedParams(max_draft=3)
    """

    slots: ClassVar[Slots]
    reads: tuple[str, ...] = ()
    unnamed: ClassVar[bool] = False
    _numbers: ClassVar[dict[str, Numbers]] = {"max_draft": {"max_draft": as_it_is}}

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`: the scores of the policy's head, or else what it `reads`."""
        return (score_column(self.head),) if self.head else self.reads

    @property
    def looks(self) -> bool:
        """See `Sequential`."""
        return self.slots.trips is not never

    def begin(self, sequence: int) -> State:
        """See `Sequential`."""
        return self.slots.begin(self.params, sequence)

    def limit(self, state: State, ahead: int) -> int:
        """See `Sequential`."""
        return self.slots.limit(self.params, state, ahead)

    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """See `Sequential`."""
        return self.slots.trips(self.params, state, depth, row)

    def proposed(self, state: State, drafted: int) -> int:
        """See `Sequential`."""
        return self.slots.proposed(self.params, state, drafted)

    def update(self, state: State, outcome: Outcome) -> State:
        """See `Sequential`."""
        return self.slots.update(self.params, state, outcome)

    def calls(self, drafted: Any) -> Any:
        """See `Sequential`."""
        return self.slots.calls(self.params, drafted)

    def __str__(self) -> str:
        """See `spec_of`."""
        return spec_of(self)


def spec_of(policy: Any) -> str:
    """The canonical spec: the first argument, and those that differ from their defaults."""
    given = {
        f.name: getattr(policy, f.name)
        for k, f in enumerate(fields(policy))
        if (k == 0 and f.name != "max_draft") or getattr(policy, f.name) != f.default
    }
    args = [given.pop(next(iter(given)))] if policy.unnamed else []
    return render(policy.name, args, given)
