"""Tree policies side by side: a target, a drafter, and how to decode with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from simkit.errors import LiveError
from simkit.heads.files import Head
from simkit.live.clock import ProcessorClock
from simkit.live.decoder import Decoder
from simkit.live.interleave import Turns
from simkit.live.rotation import Arm, facts_of
from simkit.live.settings import DecoderSettings
from simkit.live.tree_drafts import FeatureDraft, ModelDraft, TreeDraft
from simkit.live.trees import TreeDecoder
from simkit.trees.base import TreePolicy
from traces.attach import registry
from traces.manifest import ModelInfo
from traces.record.drafters import feature
from traces.record.header import model_info
from traces.record.pair import Alone, embedding, load_model
from traces.record.proof import prove
from traces.record.reader import ROOM


@dataclass
class TreeBench:
    """What `simkit.live.rotation.run` needs, for trees; see `Bench`.

    Attributes:
        target: loaded.
        network: `Feature`, or a draft model.
        vocab_size: ids that both have.
        settings: how to decode.
        turns: see `Bench`.
        by_processor: take the processor's time in place of the wall's.
        heads: learned heads by name.
    """

    target: Alone
    network: Any
    vocab_size: int
    settings: DecoderSettings
    turns: Turns = "sequence"
    by_processor: bool = False
    heads: Mapping[str, Head] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, str]:
        """See `facts_of`."""
        clock = "processor" if self.by_processor else "wall"
        return facts_of(self.target.target, self.draft_info, self.settings, self.turns, clock)

    @property
    def draft_info(self) -> ModelInfo:
        """What a manifest says of the drafter."""
        is_feature = isinstance(self.network, feature.Feature)
        return self.network.describe() if is_feature else model_info(self.network)

    def prove(self, longest: int) -> None:
        """Refuse models that are read wrongly in texts of so many tokens, and trees behind them.

        Raises:
            RecordError: see `traces.record.proof.prove`.
        """
        self.target.prove(longest, longest + ROOM)
        if not isinstance(self.network, feature.Feature):
            prove(self.network, longest, longest + ROOM)

    def decoder(self, arm: Arm, batched: bool) -> Decoder:
        """A decoder with caches of its own.

        Raises:
            LiveError: of a batch.
            PolicyError: the arm's policy drafts no trees, or cannot run live.
        """
        if batched:
            raise LiveError("trees are decoded one prompt at a time: leave out --batch-size")
        policy, on_gpu = arm.policy, self.target.target.device.type == "cuda"
        draft = None if policy is None else self.draft()
        return TreeDecoder(
            self.target.target,
            draft,
            cast(TreePolicy | None, policy),
            self.settings,
            self.vocab_size,
            clock=ProcessorClock() if self.by_processor and not on_gpu else None,
            heads=self.heads,
        )

    def draft(self) -> TreeDraft:
        """A drafter with a cache of its own."""
        if isinstance(self.network, feature.Feature):
            return FeatureDraft(self.network)
        return ModelDraft(self.network, self.vocab_size)


def load_network(spec: str, target: Alone, dtype: str) -> tuple[Any, int]:
    """The network of a drafter's spec, such as `feature("models/eagle")`, and the shared ids.

    Raises:
        DrafterError: the spec cannot be read.
        RecordError: the network does not fit the target.
        LiveError: it is of a kind that drafts no trees here.
    """
    drafter: Any = registry.parse(spec)
    device = str(target.target.device)
    if drafter.name == "feature":
        net = feature.load(drafter.path, target.target, device, dtype)
        return net, net.vocab_size
    if drafter.name == "model":
        model = load_model(drafter.path, "", device, dtype).eval()
        prove(model)
        return model, min(embedding(model).num_embeddings, target.vocab_size)
    raise LiveError(f"{spec}: a live decoder drafts trees with feature(…) and model(…) alone")
