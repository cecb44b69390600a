"""What a drafter promises that can be attached to a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from traces import specs
from traces.columns import Columns
from traces.errors import DrafterError
from traces.manifest import Manifest
from traces.trace import Trace


@dataclass(frozen=True)
class Means:
    """What drafters are run with that are networks.

    Attributes:
        target: the model that was recorded, its folder or hub id, for drafters that need what it
            says of the outputs; None where it is not at hand.
        device: to run on.
        dtype: to run in; None means as the target was recorded.
        revision: of the target on the hub.
        max_draft: Γ, the deepest draft, where the drafter does not set it.
        draft_temperature: of the draft; None means as the recording says.
        columns: the statistics of its rows that are kept, for drafters that let one choose; None
            means all.
        tree: specs of shapes (`traces.trees.shapes`), of all whose nodes trees are recorded; of
            drafters that give one draft from each start if empty.
        beside: drafters of the same run that are open already, with which what was loaded may be
            shared.
    """

    target: str | None = None
    device: str = "auto"
    dtype: str | None = None
    revision: str | None = None
    max_draft: int = 40
    draft_temperature: float | None = None
    columns: tuple[str, ...] | None = None
    tree: tuple[str, ...] = ()
    beside: tuple[Attachment, ...] = ()


NETWORK = ("target", "device", "dtype", "revision", "draft_temperature")
"""What all networks heed of these."""


class Timeable(NamedTuple):
    """A drafter whose passes can be timed by themselves, see `traces.record.latency.measure`.

    Attributes:
        bench: makes a `traces.record.latency.PassBench` of it, for shapes and a seed.
        widest: tokens in the widest pass of a draft, behind a context.
    """

    bench: Callable[..., Any]
    widest: int


class Size(NamedTuple):
    """What a drafter takes of a disk and of a processor, of each start; from a trial.

    Attributes:
        n_bytes: of its rows.
        seconds: to draft them.
    """

    n_bytes: float
    seconds: float


class Attachable(ABC):
    """A kind of drafter with its arguments: a frozen dataclass, written as a spec.

    Attributes:
        name: of specs.
        runs_models: whether it needs torch and transformers.
        heeds: names of the fields of `Means` that it makes use of; others are refused.
    """

    name: ClassVar[str]
    runs_models: ClassVar[bool] = False
    heeds: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def open(self, recording: Trace, means: Means) -> Attachment:
        """Make ready to draft from the outputs of a recording.

        Raises:
            UserError: it cannot be run on them, and why.
        """

    def timed(self, target: Any, dtype: str) -> Timeable:
        """Make its passes ready to be timed.

        Args:
            target: that was recorded, a `traces.record.pair.Alone`.
            dtype: to run in.

        Raises:
            UserError: it has no passes, or cannot be run.
        """
        raise DrafterError(
            f"{self.name} has no passes to time: what a proposal takes is measured as it is"
            " attached, or given with a cost"
        )

    def __str__(self) -> str:
        """The spec: arguments that are not the defaults."""
        given = {}
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                given[field.name] = value
        return specs.render(self.name, (), given)


class Attachment(ABC):
    """A drafter that is ready to draft from the outputs of one recording.

    Attributes:
        header: the manifest without files; see `header_of`.
    """

    header: Manifest

    @abstractmethod
    def shard(self, index: int) -> Mapping[str, Columns]:
        """The drafter's tables for the prompts of one shard, by name, in order of their keys.

        Shards come in order, each once; some may be left out, which were written before.

        Raises:
            UserError: the drafter cannot be run.
        """

    def trial(self, index: int) -> Size | None:
        """What a start takes, from a few of a shard; None where it is too little to be asked.

        Args:
            index: of the shard, which is drafted next.
        """
        return None

    def times(self) -> pa.Table | None:
        """Timing samples of the drafter that need no more than it has, `schema.LATENCY`; or None.

        Asked for once, behind the last shard, whichever of them this run has drafted.
        """
        return None

    @property
    def notes(self) -> list[str]:
        """What the user should know of the run, one line each."""
        return []


def header_of(recording: Trace, drafter: Attachable, **facts: Any) -> Manifest:
    """The manifest of a drafter that is attached to a recording, without files.

    Args:
        recording: with whose outputs, sampler and seed.
        drafter: that was asked for.
        **facts: what is the drafter's own: `kind`, `max_draft`, `draft`, `draft_passes` and others.
    """
    known = recording.manifest
    own = {"hidden": False, "mix": 0.0, "branch_target": False, "draft": None, "source": None}
    own |= {"experts": None, "target_columns": (), "lattice_columns": (), "draft_ends": False}
    own |= {"files": {}, "shapes": (), "width": 0, "path_columns": (), "bits": 0, "tokens": "all"}
    header = {"coupling": "target", "attached_to": recording.hash, "spec": str(drafter)}
    return replace(known, **{**own, **header, **facts}, complete=False)


def check_means(drafters: Sequence[Attachable], means: Means) -> None:
    """Refuse what none of the drafters would make use of.

    Raises:
        DrafterError: as said; the message names the command's options.
    """
    heeds = {name for drafter in drafters for name in _heeded(drafter, means)}
    left = [
        f"--{field.name.replace('_', '-')}"
        for field in fields(means)
        if field.name not in heeds and getattr(means, field.name) != field.default
    ]
    names = " and ".join(dict.fromkeys(drafter.name for drafter in drafters))
    names += " with --tree" * any(_plants(drafter, means) for drafter in drafters)
    one = len(drafters) == 1
    if "--columns" in left:
        verb = "writes the columns that it has" if one else "write the columns that they have"
        raise DrafterError(f"{names} {verb}: leave out --columns")
    if left:
        verb = "makes" if one else "make"
        raise DrafterError(f"{names} {verb} no use of {', '.join(left)}: leave it out")


def _heeded(drafter: Attachable, means: Means) -> set[str]:
    """What a drafter makes use of: nodes of trees are certain, and have columns of their own."""
    unused = {"columns", *(["draft_temperature"] if means.draft_temperature else [])}
    return set(drafter.heeds) - (unused if _plants(drafter, means) else set())


def _plants(drafter: Attachable, means: Means) -> bool:
    return bool(means.tree) and "tree" in drafter.heeds


def check_outputs(recording: Trace) -> None:
    """Refuse a recording whose outputs are not known token by token.

    Raises:
        DrafterError: as said.
    """
    sequences = recording.sequences
    known = pc.list_value_length(sequences["output_tokens"])  # pyright: ignore
    if not known.equals(sequences["n_output"]):
        raise DrafterError(
            f"{recording.path}: the outputs' tokens are not known: no drafter can follow them"
        )
