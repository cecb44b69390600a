"""What a cost model promises. All times are seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simkit.costs.price import StepSeconds, StepWork
from simkit.costs.timed_models import TimedModels
from simkit.errors import CostError
from traces.drafters.passes import Form, Paid, opened, passes_of
from traces.messages import how_many
from traces.trace import Trace

Model = Literal["draft", "target"]
IN_DECODERS = "measured in running decoders"
GIVEN = "given with the cost"
NOT_TIMED = "not timed, so free"


class RuleTime(NamedTuple):
    """What one decision of a policy's rule takes.

    Attributes:
        seconds: of one decision, a head's call apart.
        how: it was found out, in words.
    """

    seconds: float
    how: str


class Times(ABC):
    """The price of a step: seconds of its parts, for one trace.

    Context lengths count the known tokens before a pass: prompt, output and draft so far. Passes
    are those over `batch` sequences at once, of which each has so many tokens and so much context:
    all of them wait for the pass. `of_batch` gives the times of another number of sequences.

    Attributes:
        parallel: what a pass holds that yields a whole draft, see `traces.drafters.passes.Form`.
        dips: a verification may be faster over more tokens.

    >>> times = simkit.costs.parse("linear(draft_s=1, target_s=10)").times(traces.load("reference"))
    >>> times.verify(tokens=4, context=100) / times.draft(context=100)
    10.0
    """

    parallel: Form = "kept"
    dips: bool = False

    @property
    def models(self) -> TimedModels | None:
        """Whose passes these are; None where numbers were given, or the trace's own pair ran."""
        return None

    @property
    def weakness(self) -> str:
        """Why these times are not to be trusted, in a line; empty if nothing is known against."""
        return ""

    @property
    def batch(self) -> int:
        """Sequences in a pass."""
        return 1

    @property
    def batches(self) -> tuple[int, ...] | None:
        """How many sequences there were in the passes that were timed; None: any number is known.

        Between two of them `of_batch` gives what lies between their times.
        """
        return None

    @property
    def longest_context(self) -> int | None:
        """The longest context behind which passes were timed; None: times are of any context."""
        return None

    @property
    def longest_prompt(self) -> int | None:
        """The most tokens of a prompt whose prefill was timed; None: times are of any prompt."""
        return None

    def most_tokens(self, model: Model) -> int | None:
        """The most tokens of a model's pass that was timed; None: times are of any number.

        None as well of a draft of which only passes over one token are known: `knows_blocks`.
        """
        return None

    @property
    def knows_blocks(self) -> bool:
        """Whether `draft_block` says what more tokens in a draft pass add to it."""
        return type(self).draft_block is not Times.draft_block

    @property
    def by_experts(self) -> bool:
        """Whether a target's pass takes as long as the experts that it reads say, see `reading`."""
        return False

    def reading(self, experts: np.ndarray) -> Times:
        """The times of target passes that read so many experts, where a cost is `by_experts`.

        Of itself such a cost refuses to say what a target's pass takes.

        Args:
            experts: pairs of a layer and an expert in each pass; broadcasts with what is asked.
        """
        return self

    @abstractmethod
    def draft(self, context: np.ndarray) -> np.ndarray:
        """T_draft: a draft pass for one token, at each context length."""

    @abstractmethod
    def verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """T_verify: a target pass over γ + 1 `tokens`; the two arrays broadcast.

        What is the same for all tokens, or contexts, may be given once, as of every method here.
        Never falls as tokens grow. An empty draft is verified too, as one token.
        """

    @abstractmethod
    def decode(self, context: np.ndarray) -> np.ndarray:
        """T_target(1): the target's pass for one token in autoregressive decoding."""

    @abstractmethod
    def prefill(self, model: Model, tokens: np.ndarray) -> np.ndarray:
        """T_prefill: a model's pass over a whole prompt."""

    @abstractmethod
    def overhead(self) -> float:
        """Time per step of speculative decoding outside the passes."""

    @abstractmethod
    def baseline_overhead(self) -> float:
        """Time per token of autoregressive decoding outside the passes."""

    @abstractmethod
    def policy(self, name: str) -> float:
        """T_policy: one decision of the policy of that name (`Policy.timed_as`); 0: not known."""

    def rule_time(self, name: str) -> RuleTime | None:
        """`policy`, and how it was found out; None: nothing is known, so time the rule itself."""
        seconds = self.policy(name)
        return RuleTime(seconds, NOT_TIMED if seconds == 0 else GIVEN)

    def timed_rules(self) -> Mapping[str, float]:
        """Seconds of a decision, by name, of the rules that were measured with all they read."""
        return {}

    def drawn_anew(self, n: int) -> Sequence[Times]:
        """Times as other samples of the same machine would have given them, for intervals.

        Args:
            n: how many, at most.

        Returns:
            None at all where the spread of the times is not known, or they are given.
        """
        return ()

    def remarks(self) -> list[str]:
        """What else a reader of numbers that rest on these times must know, one line each."""
        return []

    def draft_step(self, context: np.ndarray) -> np.ndarray:
        """What each step pays the draft once, at each context length, even if it drafts nothing.

        Nothing unless a cost says otherwise: then that of a drafter whose passes over a draft are
        timed together, and `draft` is what one more token adds.
        """
        return np.zeros(np.shape(context))

    def draft_block(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """A draft pass over several `tokens` at once; the two arrays broadcast.

        As long as one over a single token, unless a cost says otherwise.
        """
        return np.broadcast_arrays(self.draft(np.asarray(context)), tokens)[0]

    def proposal(self) -> float:
        """One proposal of a drafter that makes no pass; nothing unless a cost says otherwise."""
        return 0.0

    def head(self, name: str) -> float:
        """One call of the learned head of that name; nothing unless a cost says otherwise."""
        return 0.0

    def resample(self) -> float:
        """Drawing anew after a rejection, the first part of T_r; nothing unless a cost says so."""
        return 0.0

    def communication(self) -> float:
        """Time per step in which draft and target run at once; nothing unless a cost says so."""
        return 0.0

    def of_batch(self, batch: int) -> Times:
        """The times of passes over so many sequences at once.

        Raises:
            CostError: the cost does not know them.
        """
        if batch == self.batch:
            return self
        raise CostError(
            f"the times are those of passes over {how_many(self.batch, 'sequence')}, not over"
            f" {batch}"
        )

    def price(self, work: StepWork, batch: int | None = None) -> StepSeconds:
        """What steps take.

        Args:
            work: what they did.
            batch: sequences that take such a step together, this one included; None means as many
                as these times are of.

        Raises:
            CostError: the cost does not know passes over so many sequences.
        """
        if batch is not None and batch != self.batch:
            return self.of_batch(batch).price(work)
        verify_s = self.verify(np.asarray(work.verified), np.asarray(work.context))
        alone_s, beside_s = _drafting(self, work)
        overhead_s = self.overhead() + np.where(work.communicates, self.communication(), 0.0)
        policy_s = np.asarray(work.decisions) * (self.policy(work.policy) if work.policy else 0.0)
        head_s = np.asarray(work.head_calls) * (self.head(work.head) if work.head else 0.0)
        longer_s = np.where(beside_s > 0, np.maximum(beside_s - verify_s, 0.0), 0.0)
        parts = np.broadcast_arrays(alone_s + longer_s, verify_s, policy_s + head_s, overhead_s)
        return StepSeconds(*(np.array(part, np.float64) for part in parts))

    def drafts(
        self,
        context: np.ndarray | int,
        tokens: np.ndarray,
        paid: Paid = "token",
        unread: np.ndarray | int = 1,
    ) -> np.ndarray:
        """Drafts of so many tokens each, what a step pays the draft once included.

        Args:
            context: known tokens before each draft; broadcasts with `tokens` to any shape S.
            tokens: in each draft.
            paid: how drafts are paid; "none" is free.
            unread: see `traces.drafters.passes.passes_of`.

        Returns:
            Shape S, float64.
        """
        known, k, new = np.broadcast_arrays(context, tokens, unread)
        passes = passes_of(opened(paid, self.parallel), k, new)
        work = StepWork(known, 1, passes.tokens, known[..., None] + passes.behind)
        return self.price(work._replace(from_model=paid != "none")).draft_s

    def cost_ratio(self, context: np.ndarray, paid: Paid = "token") -> np.ndarray:
        """C = T_target(1) / T_draft(1) at each context length; infinite where drafting is free.

        T_draft(1) is what a draft of one token takes. Where a step pays for all its drafting at
        once, that is most of it, and not what one token more would add.

        Args:
            context: known tokens.
            paid: see `drafts`.
        """
        draft_s = self.drafts(context, np.ones(1, np.int64), paid)
        target_s = np.asarray(self.decode(np.asarray(context)), np.float64)
        draft_s = np.broadcast_to(draft_s, target_s.shape)
        return np.divide(target_s, draft_s, out=np.full(draft_s.shape, np.inf), where=draft_s > 0)


class ByPasses(Times):
    """Times of which those of passes come from one function for each model.

    Attributes:
        passes: seconds of a pass over so many tokens behind so much context.
    """

    passes: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]

    def draft(self, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        return self.passes["draft"](np.ones_like(context), context)

    def draft_block(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        return self.passes["draft"](tokens, context)

    def verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        return self.passes["target"](tokens, context)

    def decode(self, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        return self.passes["target"](np.ones_like(context), context)


class CostModel(ABC):
    """A frozen dataclass that says how long things take.

    Attributes:
        name: the word that starts its spec, its kind.
        what: it in a few words, for lists.
        source: where its form or its numbers come from.

    >>> cost = simkit.costs.parse("measured")
    >>> cost.times(traces.load("reference")).batches  # its passes were timed over one sequence
    (1,)
    """

    name: ClassVar[str]
    what: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @abstractmethod
    def times(self, trace: Trace) -> Times:
        """The times for one trace.

        Raises:
            CostError: the trace lacks what the model needs.
        """


def _drafting(times: Times, work: StepWork) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of the draft before the target's pass, and beside it.

    What a step pays the draft once goes with the first of its passes.
    """
    context = np.asarray(work.context)
    tokens, known, beside = np.broadcast_arrays(
        work.draft_tokens, work.draft_context, work.meanwhile
    )
    each_s = np.zeros(tokens.shape)
    if tokens.any():  # a cost may know of no draft model
        each_s = np.where(tokens > 0, times.draft_block(np.maximum(tokens, 1), known), 0.0)
    alone = (tokens > 0) & ~beside
    no_model_s = np.full(context.shape, times.proposal())
    once_s = times.draft_step(context) if work.from_model else no_model_s
    later = beside.any(-1) & ~alone.any(-1)
    alone_s = np.where(beside, 0.0, each_s).sum(-1) + np.where(later, 0.0, once_s)
    return alone_s, np.where(beside, each_s, 0.0).sum(-1) + np.where(later, once_s, 0.0)
