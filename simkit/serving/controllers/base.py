"""What a controller is: it says how many tokens each request of a batch drafts and has verified.

A rule that looks at the batch is `Slots`: functions over arrays that compile as they stand (numba),
and that a live server runs as they are. What it remembers is an array of numbers, which they
change in place.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from simkit.errors import PolicyError
from simkit.policies import Policy
from simkit.policies.arguments import Checked, Numbered
from traces.registry import Registry, of_class
from traces.specs import render

if TYPE_CHECKING:
    from simkit.serving.prices import Prices

Together = Literal["each", "all", "mean"]


class View(NamedTuple):
    """The requests that decode in an iteration, n of them, in the order of their admission.

    Attributes:
        number: of the iteration, from 0.
        now_s: when it begins.
        prefilling: requests beside them whose prompts are not read yet: in `decide` those that were
            admitted before, then those whose prompts this iteration reads.
        waiting: requests that were not admitted yet.
        before: requests of the iteration before: those that decoded, and those whose prompts it
            read.
        request: (n,) int64, index of each.
        room: (n,) int64, the longest draft that its budget leaves; a draft may end earlier.
        context: (n,) int64, known tokens.
        tokens: (n,) int64, of its output so far.
        steps: (n,) int64, that it has taken.
        drafted: (n,) int64, in its step before; -1 in its first one. So are the next two.
        proposed: (n,) int64, of those, the ones that were verified.
        accepted: (n,) int64.
        ahead: (n,) int64, tokens that would be accepted of a draft without end. For bounds, in a
            simulation alone; -1 elsewhere.
        confidence: (n, K) float64, of each token of the drafts, NaN where there is none: the column
            that the controller names. In `decide` all are NaN: nothing is drafted yet.

    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> rule = lambda view: 4 if len(view.request) < 8 else 0
    >>> simkit.serve("reference", rule, cost, concurrency=[4, 16], requests=40, seeds=1)
    <Served: 2 settings, 2 runs>
    """

    number: int
    now_s: float
    prefilling: int
    waiting: int
    before: int
    request: np.ndarray
    room: np.ndarray
    context: np.ndarray
    tokens: np.ndarray
    steps: np.ndarray
    drafted: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    ahead: np.ndarray
    confidence: np.ndarray


def verify_all(
    params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray, proposed: np.ndarray
) -> None:
    """`choose` of a controller that has all drafted tokens verified."""


def heed_nothing(
    params: Any,
    state: Any,
    view: View,
    drafted: np.ndarray,
    proposed: np.ndarray,
    accepted: np.ndarray,
    ended: np.ndarray,
) -> None:
    """`observe` of a controller without feedback."""


@dataclass(frozen=True)
class Slots:
    """A controller's rule, as module-level functions of numbers and arrays.

    Attributes:
        decide: (params, state, view, prices, drafted): fill in how many tokens each request drafts;
            more than its room are cut.
        choose: (params, state, view, prices, drafted, proposed): lower `proposed`, which holds the
            drafted ones, to those that are to be verified.
        observe: (params, state, view, drafted, proposed, accepted, ended): what came of it; `ended`
            says which requests are done.
    """

    decide: Callable[..., None]
    choose: Callable[..., None] = verify_all
    observe: Callable[..., None] = heed_nothing


class Controller(Checked, ABC):
    """Says how many tokens to draft, a batch at a time: `ByLength`, `ByRule` or a user's own.

    Attributes:
        name: the word that starts its spec.
        source: whose it is.
        max_draft: the longest draft it may ask for, in tokens.
        needs_future: whether it must know which tokens will be accepted; only a simulation can tell
            it.

    >>> controller = simkit.serving.parse("off_above(3, 8)")
    >>> str(controller), controller.max_draft, controller.needs_future
    ('off_above(3, batch=8)', 3, False)
    """

    name: ClassVar[str]
    source: ClassVar[str] = ""
    max_draft: int
    needs_future: ClassVar[bool] = False

    def __str__(self) -> str:
        """The canonical spec: the first argument, and those that differ from their defaults."""
        if not is_dataclass(self):
            return self.name
        own = [f for f in fields(self) if f.init]
        given = {
            f.name: getattr(self, f.name)
            for k, f in enumerate(own)
            if k == 0 or getattr(self, f.name) != f.default
        }
        args = [given.pop(own[0].name)] if own else []
        return render(self.name, args, given)


class ByLength(Controller, Numbered):
    """Decides lengths before drafts are made, and maybe cuts what is verified of them.

    Attributes:
        slots: the rule.
        column: which of the draft's statistics `View.confidence` holds; "" if none.
        speculative: whether it drafts at all; if not, the target decodes alone.
    """

    slots: ClassVar[Slots]
    column: str = ""
    speculative: ClassVar[bool] = True

    def begin(self, max_batch: int) -> np.ndarray:
        """What it remembers, before the first iteration of batches of at most so many; float64."""
        return np.zeros(1)

    def bind(self, prices: Prices) -> ByLength:
        """The controller with what it takes from the times; most take nothing."""
        return self


class ByRule(Controller):
    """Asks a draft-length policy after each drafted token.

    Attributes:
        policy: whose rule is asked.
        together: "each": every request stops by itself. "all": drafts go on until all have stopped,
            and all have the same length. "mean": one rule is asked, with the batch's mean row.
    """

    policy: Policy
    together: ClassVar[Together]

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return self.policy.max_draft

    def __str__(self) -> str:
        return f"{self.name}({self.policy})"


C = TypeVar("C", bound=type[Controller])

CONTROLLERS: Registry[type[Controller]] = Registry(
    "controller", PolicyError, "simkit.controllers", of_class(Controller)
)
"""Controller classes by the name of their specs."""


def register(cls: C) -> C:
    """Make a controller known by its `name` (decorator).

    Raises:
        PolicyError: another controller has that name.
    """
    CONTROLLERS.add(cls.name, cls)
    return cls
