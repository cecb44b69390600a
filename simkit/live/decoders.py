"""Ways to call the decoder with a pair of models: one text, a batch, a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simkit.errors import LiveError
from simkit.live.block_scorer import BlockScorer
from simkit.live.chains import Chains
from simkit.live.clock import Clock
from simkit.live.deciders import Headed, check
from simkit.live.decoder import Decoder, OneByOne, Request
from simkit.live.keyed_draws import Keyed
from simkit.live.served import Iteration, iterations_of
from simkit.live.settings import DecoderSettings
from simkit.policies import PolicyError, Sequential
from simkit.serving.rules import All, Decider, Each
from traces.record.forward import LastStates
from traces.record.pair import Pair
from traces.record.reader import Reader

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STOP = ("all", "any")


class TimedDecoder(OneByOne):
    """Decodes sequences one by one, in ascending order.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: asked after every drafted token; None decodes with the target alone.
        settings: how to decode.
        vocab_size: ids that both models have.
        heads: learned heads by name, those that the policy reads.

    Raises:
        PolicyError: see `check`.
        HeadError: likewise.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        policy: Sequential | None,
        settings: DecoderSettings,
        vocab_size: int,
        heads: Mapping[str, BlockScorer] | None = None,
    ) -> None:
        decider: Decider | None = None
        reads_heads = False
        if policy is not None:
            columns = check(policy, settings, heads or {})
            reads_heads = any(column.startswith("score:") for column in columns)
            if reads_heads:
                decider = Headed(policy, columns, policy.max_draft, heads or {})
            else:
                decider = Each(policy, columns, policy.max_draft)
        reads = Reader(target, vocab_size)
        self.keyed: Keyed | None = None
        if not settings.sampler.greedy:
            self.keyed = Keyed(Reader(draft, vocab_size), settings, reads.device)
        states = LastStates(draft) if reads_heads else None
        drafts = Reader(draft, vocab_size, states=states)
        super().__init__(Chains(reads, drafts, decider, settings, self.keyed), settings)
        self.policy = policy


class BatchDecoder(Decoder):
    """Decodes batches greedily whose sequences share each stop decision.

    Each sequence has its own state of the policy and its own verdict; a draft goes on until the
    rules of all of its sequences have stopped (or of any of them), and then all have drafts of that
    length. A sequence whose rule has stopped is not asked again in that step. Accepted lengths
    differ; a sequence that has ended leaves the batch.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: asked for every sequence; None decodes with the target alone.
        settings: how to decode; greedily.
        vocab_size: ids that both models have.
        stop: "all" or "any", see above.

    Raises:
        PolicyError: see `check`; it reads a head, or verified batches anew, which a batch does not.
        LiveError: the settings sample, or `stop` is neither.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        policy: Sequential | None,
        settings: DecoderSettings,
        vocab_size: int,
        stop: str = "all",
    ) -> None:
        if not settings.sampler.greedy:
            raise LiveError("a batch can only be decoded greedily, at temperature 0")
        if stop not in STOP:
            raise LiveError(f"stop must be all or any, not {stop!r}")
        if policy and policy.head:
            raise PolicyError(f"{policy} reads a head, which a batch cannot run")
        if policy and policy.extra_passes:
            raise PolicyError(f"{policy} drafts after extra passes, which a batch cannot run")
        decider = None
        if policy:
            decider = All(policy, check(policy, settings, {}), policy.max_draft, stop)
        reads, drafts = Reader(target, vocab_size), Reader(draft, vocab_size)
        super().__init__(Chains(reads, drafts, decider, settings), settings, slots=None)


class LiveServed(NamedTuple):
    """What came of some requests: iterations, and the output of each."""

    iterations: list[Iteration]
    outputs: list[list[int]]


class LiveServer(Decoder):
    """Greedy decoding of requests that come and go.

    It judges the simulator of `simkit.serving`, whose schedule it keeps and none of whose loop it
    uses. The requests whose prompt was read decode together: the controller says how far they
    draft, draft rounds hold all of them and go on until all have stopped, and one pass verifies as
    many tokens of each as the longest draft has.

    Args:
        pair: the models.
        decider: says how far to draft; its controller is its own. None: the target alone.
        settings: how to decode; greedily.
        concurrency: requests in flight.
        clock: of the log; None: the models' device's.

    Raises:
        LiveError: the settings sample, or the concurrency is below 1.
    """

    def __init__(
        self,
        pair: Pair,
        decider: Decider | None,
        settings: DecoderSettings,
        concurrency: int,
        clock: Clock | None = None,
    ) -> None:
        if not settings.sampler.greedy:
            raise LiveError("a server can only decode greedily, at temperature 0")
        if concurrency < 1:
            raise LiveError(f"concurrency must be at least 1, not {concurrency}")
        target, draft = (Reader(model, pair.vocab_size) for model in (pair.target, pair.draft))
        super().__init__(Chains(target, draft, decider, settings), settings, concurrency, clock)

    def serve(self, requests: Sequence[Request]) -> LiveServed:
        """Serve requests, first come, first served."""
        found = self.run(requests)
        return LiveServed(iterations_of(found), found.outputs)
