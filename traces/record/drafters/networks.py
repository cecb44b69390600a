"""Parallel and feature drafters, and a target's MTP layers, attached to a recording's outputs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from traces.attach.drafter import NETWORK, Attachable, Attachment, Means, Timeable
from traces.errors import DrafterError
from traces.messages import how_many
from traces.record.drafters import dflash, feature, files, mtp, parallel
from traces.record.drafters.coupling import COLUMNS
from traces.record.drafters.running import Planting, RunningDrafts, reader_of, shapes_of
from traces.record.drafters.target import own_dtype, own_sampler
from traces.record.drafters.timing import ChainBench, ParallelBench
from traces.record.folder import check_folder
from traces.record.pair import Alone
from traces.registry import suggest
from traces.trace import Trace


class Network(Attachable):
    """A drafter that is run over known texts, a group of starts at a time.

    Attributes:
        length: tokens of a draft that are asked for.
        draft_passes: see `Manifest`.
        in_words: what it is.
    """

    length: int
    draft_passes: ClassVar[str]
    in_words: ClassVar[str]
    runs_models = True
    heeds = (*NETWORK, "columns")

    @abstractmethod
    def load(self, target: Alone, dtype: str) -> Any:
        """The network, for a target.

        Raises:
            RecordError: the folder is none of its kind, or does not fit the target.
        """

    @abstractmethod
    def check_folder(self) -> None:
        """Refuse a folder that is none of its kind, before the target is loaded, which takes long.

        Raises:
            RecordError: as said.
        """

    def depth(self, network: Any) -> int:
        """Tokens of its drafts, Γ."""
        return self.length

    def timed(self, target: Alone, dtype: str) -> Timeable:
        """See `Attachable`: not all are timed yet."""
        raise DrafterError(f"{self.name}: the passes of {self.in_words} are not timed: give a cost")

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise DrafterError(
                f"{self.name}: length must be a whole number >= 1, not {self.length!r}"
            )

    def open(self, recording: Trace, means: Means) -> Attachment:
        """See `Attachable`."""
        sampler = own_sampler(recording, self, means)
        columns = _asked(means.columns)
        if self.length > recording.max_new_tokens:
            raise DrafterError(
                f"{self.name}: length must be at most the trace's T_max ="
                f" {how_many(recording.max_new_tokens, 'token')}, not {self.length}"
            )
        wanted = shapes_of(recording, self, means) if means.tree else []
        self.check_folder()
        dtype = own_dtype(recording, means)
        reader = reader_of(recording, means, dtype)
        network = self.load(reader.target, dtype)
        if wanted:
            return Planting(recording, self, reader, network, wanted, self.draft_passes)
        return RunningDrafts(
            recording,
            self,
            reader,
            network,
            self.depth(network),
            kind="lattice",
            draft_passes=self.draft_passes,
            lattice_columns=columns,
            sampler=sampler,
        )


@dataclass(frozen=True)
class ParallelDrafter(Network):
    """A parallel drafter, PARD or PARD-2: K tokens in one pass over K - 1 mask tokens.

    Attributes:
        path: folder of the drafter.
        length: K, tokens of a draft.
        mode: "independent" or "dependent"; "" takes the mode that the folder names.
    """

    name = "parallel"
    heeds = (*Network.heeds, "tree")
    path: str
    length: int = 16
    mode: str = ""

    draft_passes = "draft"  # one, whatever its length

    def check_folder(self) -> None:
        """See `Network`."""
        parallel.settings_of(Path(self.path))

    def load(self, target: Alone, dtype: str) -> parallel.Parallel:
        """See `Network`."""
        device = str(target.target.device)
        found = target.target, target.tokenizer, device, dtype
        return parallel.load(self.path, *found, self.mode or None)

    def timed(self, target: Alone, dtype: str) -> Timeable:
        """See `Attachable`; up to K + 1 tokens are kept, before K - 1 masks."""
        network = self.load(target, dtype)
        return Timeable(partial(ParallelBench, network, self.length), 2 * self.length)


@dataclass(frozen=True)
class FeatureDrafter(Network):
    """A drafter that reads the target's features and drafts token by token: EAGLE-1, 2 and 3.

    Attributes:
        path: folder of the checkpoint.
        length: tokens of a draft.
    """

    name = "feature"
    heeds = (*Network.heeds, "tree")
    path: str
    length: int = 8

    draft_passes = "chain"  # one a token, of which the first encodes the kept tokens anew

    def check_folder(self) -> None:
        """See `Network`."""
        files.llama_config(Path(self.path))

    def load(self, target: Alone, dtype: str) -> feature.Feature:
        """See `Network`."""
        return feature.load(self.path, target.target, str(target.target.device), dtype)

    def timed(self, target: Alone, dtype: str) -> Timeable:
        """See `Attachable`; up to K + 1 tokens are encoded anew."""
        return Timeable(partial(ChainBench, self.load(target, dtype)), self.length + 1)


@dataclass(frozen=True)
class BlockNetwork(Network):
    """DFlash, a drafter that proposes a block of tokens in one pass, run by transformers' classes.

    Attributes:
        path: folder of the drafter, whose config has the length of a draft.
    """

    name = "block"
    path: str
    length: ClassVar[int] = 1  # nothing is asked for
    in_words = "a block drafter"

    draft_passes = "block"  # one, always over the whole block

    def depth(self, network: dflash.BlockDrafter) -> int:
        """As long as its block."""
        return network.block

    def check_folder(self) -> None:
        """See `Network`."""
        if Path(self.path).is_dir():  # else it may be a hub id
            check_folder(Path(self.path))

    def load(self, target: Alone, dtype: str) -> dflash.BlockDrafter:
        """See `Network`."""
        return dflash.load(self.path, target.target, str(target.target.device), dtype)


@dataclass(frozen=True)
class MtpLayers(Network):
    """The target's own layers for multi-token prediction (MTP): each layer drafts one more token.

    Attributes:
        length: tokens of a draft, which the first `length` layers make; 0: all layers.
    """

    name = "mtp"
    in_words = "MTP layers"
    length: int = 0

    def __post_init__(self) -> None:
        if self.length != 0:
            super().__post_init__()

    draft_passes = "chain"  # one a token, of which the first takes up the kept tokens

    def depth(self, network: mtp.Mtp) -> int:
        """As many as are asked for, or as it has layers."""
        return self.length or network.n_layers

    def check_folder(self) -> None:
        """See `Network`: it has none of its own."""

    def load(self, target: Alone, dtype: str) -> mtp.Mtp:
        """See `Network`."""
        network = mtp.load(target.target)
        if self.length > network.n_layers:
            raise DrafterError(
                f"mtp: length {self.length} is too long: the target has {network.n_layers} MTP"
                " layers, and each of them proposes one token"
            )
        return network


def _asked(columns: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns to keep, in the order in which they are written.

    Raises:
        DrafterError: one of them is not known.
    """
    for name in columns or ():
        if name not in COLUMNS:
            raise DrafterError(f"--columns: there is no {name!r} ({suggest(name, COLUMNS)})")
    return tuple(name for name in COLUMNS if columns is None or name in columns)
