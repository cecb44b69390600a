"""Another autoregressive draft model of the same tokenizer, attached to a recording's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from traces.attach.drafter import (
    NETWORK,
    Attachable,
    Attachment,
    Means,
    Timeable,
    header_of,
)
from traces.columns import Columns
from traces.errors import DrafterError, RecordError
from traces.messages import how_many
from traces.record.agreement import check
from traces.record.drafters.nodes import NodeModel
from traces.record.drafters.running import Planting, reader_of, shapes_of
from traces.record.drafters.target import check_target, given_outputs, own_dtype, own_sampler
from traces.record.header import device_name, library_versions, model_info
from traces.record.latency import PassBench
from traces.record.pair import Alone, Pair, load_model, load_pair, with_draft
from traces.record.plan import Plan
from traces.record.recorder import check_lengths
from traces.record.shard import record_shard
from traces.trace import Trace

_MOST_STRANGE = 0.02  # share of outputs' tokens that rounding may account for


@dataclass(frozen=True)
class ModelDrafter(Attachable):
    """An autoregressive draft model, attached as `simkit record` would have recorded it.

    Both models read the outputs in the recording's own batches. With at_once=1 they read token by
    token: under greedy decoding on the same device, the rows equal those of a recording of the pair
    to the last bit. Larger values read many tokens a pass, which is faster but rounds the last bits
    differently.

    Attributes:
        path: the model's folder or hub id.
        hidden: keep the model's hidden states.
        branch_target: keep the target's statistics of branch rows too.
        at_once: tokens of each output that one pass reads.
    """

    name = "model"
    runs_models = True
    heeds = (*NETWORK, "max_draft", "tree")
    path: str
    hidden: bool = False
    branch_target: bool = False
    at_once: int = 1

    def open(self, recording: Trace, means: Means) -> Attachment:
        """See `Attachable`."""
        sampler = own_sampler(recording, self, means)
        dtype = own_dtype(recording, means)
        if means.tree:
            return self._planting(recording, means, dtype)
        assert means.target is not None
        pair = load_pair(means.target, self.path, means.device, dtype, means.revision, known=True)
        check_target(recording, pair.target)
        known = recording.manifest.vocab_size
        pair = replace(pair, vocab_size=min(pair.vocab_size, known or pair.vocab_size))
        plan = Plan(
            sampler=sampler,
            seed=recording.manifest.seed,
            max_new_tokens=recording.max_new_tokens,
            max_draft=means.max_draft,
            eos_token_ids=recording.eos_token_ids,
            batch_size=recording.manifest.batch_size,
            branch_target=self.branch_target,
            hidden=self.hidden,
            at_once=self.at_once,
            coupling=recording.manifest.coupling,  # pyright: ignore[reportArgumentType]
            by_engine=recording.manifest.outputs is not None,
        )
        return _Following(recording, self, pair, plan)

    def _planting(self, recording: Trace, means: Means, dtype: str) -> Attachment:
        """Trees instead of rows: nodes are recorded without states, and without the target's view.

        Raises:
            UserError: rows are asked for as well, or the model or the shapes do not fit.
        """
        for name in ("hidden", "branch_target", "at_once"):
            if getattr(self, name) != getattr(ModelDrafter, name):
                raise DrafterError(f"{self.name}: {name} cannot be used with --tree")
        if means.max_draft != Means.max_draft:
            raise DrafterError("--max-draft cannot be used with --tree: the shapes set the depth")
        wanted = shapes_of(recording, self, means)
        reader = reader_of(recording, means, dtype)
        pair = with_draft(reader.target, self.path, dtype, means.revision)
        network = NodeModel(pair.draft, pair.vocab_size)
        return Planting(recording, self, reader, network, wanted, "token")

    def timed(self, target: Alone, dtype: str) -> Timeable:
        """See `Attachable`; each pass is over one token."""
        model = load_model(self.path, "", str(target.target.device), dtype).eval()
        return Timeable(partial(PassBench, model), 1)


class _Following(Attachment):
    """See `Attachment`."""

    def __init__(self, recording: Trace, drafter: ModelDrafter, pair: Pair, plan: Plan) -> None:
        self._recording, self._pair, self._plan = recording, pair, plan
        self._strange = self._tokens = 0
        self.header = header_of(
            recording,
            drafter,
            kind="path",
            draft_passes="token",
            max_draft=plan.max_draft,
            target=model_info(pair.target),
            draft=model_info(pair.draft),
            vocab_size=pair.vocab_size,
            dtype=str(pair.target.dtype).removeprefix("torch."),
            device=device_name(pair.target),
            libraries=library_versions(),
            sampler=plan.sampler,
            branch_target=plan.branch_target,
            hidden=plan.hidden,
            statistics="plain",
        )
        check_lengths(pair, given_outputs(recording)[0], plan)

    def shard(self, index: int) -> Mapping[str, Columns]:
        """See `Attachment`."""
        size = self._plan.batch_size
        prompts, outputs = given_outputs(self._recording, index * size, size)
        if max(max(tokens) for tokens in outputs) >= self._pair.vocab_size:
            raise RecordError(
                f"an output holds a token beyond the common vocabulary of {self._pair.vocab_size}"
            )
        rows = record_shard(self._pair, prompts, index * size, self._plan, outputs=outputs)
        if rows.agreement is not None:
            check(rows.agreement, self._plan.sampler, whole=False)
        n = sum(map(len, outputs))
        self._strange += rows.strange
        self._tokens += n
        if rows.strange > max(1, _MOST_STRANGE * n):
            raise RecordError(
                f"shard {index}: the target would draw {rows.strange} of {how_many(n, 'token')}"
                " differently from the recording"
            )
        return rows.tables | ({"hidden": rows.hidden} if rows.hidden is not None else {})

    @property
    def notes(self) -> list[str]:
        """See `Attachment`."""
        if not self._strange:
            return []
        return [
            f"the target would draw {self._strange} of {how_many(self._tokens, 'token')} otherwise"
            " than they were recorded: its sums are rounded otherwise here"
        ]
