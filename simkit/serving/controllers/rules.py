"""Draft-length policies under load: each request's own, or one length for the batch."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.policies import Policy
from simkit.serving.controllers.base import ByRule, register


@register
@dataclass(frozen=True)
class Each(ByRule):
    """Let every request stop by its own policy; write the policy's spec itself, as svip(h=0.4).

    A request's steps then do not depend on the batch. State that lasts a run, `Sequential.carried`,
    is that of a replay of the trace in its order.

    Attributes:
        policy: see `ByRule`.
    """

    policy: Policy

    name = "each"
    source = "the policy's"
    together = "each"

    def __str__(self) -> str:
        return str(self.policy)


@register
@dataclass(frozen=True)
class AllStopped(ByRule):
    """Draft one length for the batch: until the policy has stopped every request.

    A request that has stopped is not asked again in that step. A draft at its end, by its budget or
    an EOS, has stopped.

    Attributes:
        policy: see `ByRule`.
    """

    policy: Policy

    name = "all_stopped"
    source = "vLLM pull requests"
    together = "all"


@register
@dataclass(frozen=True)
class BatchMean(ByRule):
    """Draft one length for the batch: one policy reads the mean of all requests' newest tokens.

    The mean is over the requests whose drafts are not at their end. The rule's state is the
    batch's, and lasts the run; what it is told of a step is the mean over the batch, rounded.

    Attributes:
        policy: see `ByRule`.
    """

    policy: Policy

    name = "batch_mean"
    source = "vLLM pull requests"
    together = "mean"
