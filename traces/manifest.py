"""The manifest of a trace: what was recorded with what, and which files hold it.

`manifest.json` is written last, so a file counts only once it is listed here. It holds no times of
day: the same recording gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import pyarrow as pa

from traces import drafters, reading, schema, signature
from traces.arrays import FLOAT_BITS
from traces.decoding import decode, in_json
from traces.drafters.kind import DrafterKind
from traces.drafters.passes import Passes
from traces.errors import RecordError, TraceError
from traces.sampler import Sampler
from traces.schema import SCHEMA_VERSION

MANIFEST = "manifest.json"
SIGNATURE = "manifest_sha256"  # of all other fields
Statistics = Literal["plain", "kernel"]  # torch's own sums, or the Triton kernel's
Coupling = Literal["draft", "target"]  # what an output is drawn with: see docs/drafters.md
Tokens = Literal["all", "ends"]  # of drafts, off the outputs' path: see `Manifest`
EosFrom = Literal["model", "tokenizer", "user"]  # who names the EOS tokens of a recording
_WORDS = {
    "draft_passes": Passes,
    "eos_from": EosFrom,
    "statistics": Statistics,
    "coupling": Coupling,
    "tokens": Tokens,
}
FEWEST_BITS = 4
_MOST_BYTES = 64 * reading.MEBIBYTE  # of its text: some 300,000 files


@dataclass(frozen=True)
class ModelInfo:
    """One of the two models.

    Attributes:
        id: its name on the hub, or the name of its folder.
        revision: the hub's commit, if it came from there.
        weights_sha256: of the weight files.
        dtype: that it ran in.
        vocab_size: rows of its output layer, padding included.
        n_parameters: all of them, tied ones counted once.
        architecture: the class named in its config.
        shape: sizes from its config (n_layers, hidden_size, n_kv_heads, …), for cost formulas.
    """

    id: str
    revision: str | None
    weights_sha256: str
    dtype: str
    vocab_size: int
    n_parameters: int
    architecture: str
    shape: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceInfo:
    """Another program's file that a trace was made of.

    Attributes:
        file: its name, without the folder.
        sha256: of its bytes.
        drafter: whose drafts were taken; empty where it has none.
        align: which step an entry was taken to be for, see docs/importing.md; empty as well.
        sample: how records were picked, in words; empty where all were taken.
        notes: what a reader of its numbers should know, one line each; left out of the text and
            the hash where there are none.
    """

    file: str
    sha256: str
    drafter: str = ""
    align: str = ""
    sample: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputsInfo:
    """Outputs that an engine produced, and the target read.

    Attributes:
        file: their file's name, without the folder.
        sha256: of its bytes.
        remark: how far they are the target's own, in one line.
    """

    file: str
    sha256: str
    remark: str = ""


@dataclass(frozen=True)
class ExpertsInfo:
    """The experts of a target, of which a trace says which ones each token reads.

    Attributes:
        layers: of the model that have experts to choose from.
        count: experts of a layer.
        per_token: to how many of a layer a token is routed, at most.
        parameters: weights of one expert in one layer; 0 where that is not known.

    Raises:
        TraceError: a number is out of range.
    """

    layers: int
    count: int
    per_token: int
    parameters: int = 0

    def __post_init__(self) -> None:
        if not (min(self.layers, self.per_token, self.parameters + 1) > 0):
            raise TraceError(f"experts have numbers below 1: {self}")
        if self.per_token > self.count:
            raise TraceError(f"experts: {self.per_token} of a token, of {self.count}")

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer in a row: expert e is bit e % 8 of byte e // 8."""
        return -(-self.count // 8)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row: the layers one behind the other."""
        return self.layers * self.layer_bytes


@dataclass(frozen=True)
class FileInfo:
    """One file of a trace, as it was when it was written."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All that is known of a recording. Without `files` and `complete` it is the header.

    Attributes:
        max_draft: Γ, the deepest recorded draft.
        max_new_tokens: T_max.
        complete: whether every prompt was recorded.
        kind: of drafter, one of `traces.drafters`: "path" (rows on a path, and branches; "rows" in
            the text), "lattice" (a draft of its own for each start), "tree" (the same, of several
            children a node), "target" (no drafter) or "log" (the counts of an engine's steps).
        coupling: of draft and output, `Coupling`: "draft" where the output is made of the draft's
            tokens and their corrections, "target" where the target's own draws make it; left out of
            the text and the hash if it is the first.
        draft_passes: of the draft model, `traces.drafters.passes.Passes`: one a "token", one a
            "draft" however long, …; left out of the text and the hash if it is the first.
        target: the model whose distribution is p; None where no model was run.
        draft: the model whose distribution is q.
        tokenizer_sha256: of the tokenizer's file.
        vocab_size: of the vocabulary that both models share; None where it is not known.
        dtype: that the models were asked to run in.
        device: its name, and whatever else of it changes the last bits (CPU threads).
        libraries: versions, by name.
        sampler: how tokens were drawn.
        seed: of the keyed draws.
        batch_size: prompts in a shard. Shard k holds the prompts from k * batch_size on.
        n_prompts: lines of the prompts file; a prompt's `sequence` is its index, from 0.
        prompts_sha256: of the prompts as tokens.
        eos_token_ids: tokens that end an output, ascending.
        eos_from: who names them, `EosFrom`: the target's generation settings, the tokenizer where
            these name none, or who recorded; left out of the text and the hash if it is the first.
        other_ends: tokens that end a text by the tokenizer, or a turn by the chat template, but no
            output, ascending; left out of the text and the hash where there are none.
        near_ties: greedy output tokens beside which another is as likely but for the rounding of
            the models' dtype: there engines may differ; left out where there are none.
        template_sha256: of the chat template; left out where no prompt went through one.
        warned: what libraries warned of while prompts were cut, one line each; left out likewise.
        set_aside: the target's own generation settings that the recording does not follow, as
            "repetition_penalty=1.05"; left out of the text and the hash where there are none.
        branch_target: whether branch rows hold the target's view too.
        hidden: whether the draft model's states are there.
        experts: of the target, where the trace says which ones each token is routed to; left out of
            the text and the hash where it does not.
        mix: share of the draft's own tokens in the mixed contexts; 0 where there are none. It is
            left out of the text and the hash then, which are those of traces before mixing.
        statistics: what reduced the logits of recorded models, `Statistics`; left out of the text
            and the hash if it is the first.
        path_columns: the statistics that positions and branches have, some of `schema.STATISTICS`,
            where not all of them were kept; else empty and left out of the text and the hash.
        bits: significant bits to which statistics were rounded, see `traces.thin`; 0, which is left
            out of the text and the hash, where they are as they were computed.
        tokens: which draft tokens branches and lattices have, `Tokens`: "all", or of "ends" alone,
            the EOS tokens, where the lowest id that is none stands for all others, which no replay
            reads; left out of the text and the hash if it is the first.
        lattice_columns: what a lattice has beyond its key and `accepted`, some of
            `schema.LATTICE_COLUMNS`; left out of the text and the hash of a trace of rows.
        target_columns: what a recording of the target alone has beyond its key and its tokens,
            some of `schema.TARGET_COLUMNS`; left out of the text and the hash of others.
        draft_ends: whether a draft of a lattice that is shorter than others is whole, as the
            drafter made it; left out of the text and the hash if not.
        shared_path: whether the drafts of a log were made by a draft model with a cache, so that a
            token's verdict does not depend on where its draft began; left out of the text and the
            hash of other traces.
        unordered: whether the order of a log's steps is not known; left out as `shared_path` is.
        totals: whether a log has the sums of each request alone, which are spread evenly over its
            steps; left out as `shared_path` is.
        shapes: specs of `traces.trees.shapes`, whose nodes a trace of trees holds; left out of the
            text and the hash of others, as `width`.
        width: children of each node of a tree that has any, if there are so many.
        source: the file that an imported trace was made of; left out of the text and the hash of
            a trace that was recorded.
        outputs: whose outputs they are, of a recording that did not generate them; left out of the
            text and the hash of others.
        attached_to: hash of the recording to whose outputs this drafter was attached; left out of
            the text and the hash of a recording.
        spec: of a drafter that was attached, as it was asked for; left out as `attached_to` is.
        settings: what the models' files beside their weights say, by file and name, as long as the
            trace is unfinished: it must not change before that, see `traces.differences`.
        files: by path inside the trace, with forward slashes.

    Raises:
        TraceError: a value is out of range.
    """

    max_draft: int
    max_new_tokens: int
    schema_version: int = SCHEMA_VERSION
    complete: bool = False
    kind: str = "path"
    draft_passes: str = "token"
    target: ModelInfo | None = None
    draft: ModelInfo | None = None
    tokenizer_sha256: str | None = None
    vocab_size: int | None = None
    dtype: str | None = None
    device: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=Sampler)
    seed: int = 0
    batch_size: int = 1
    n_prompts: int = 0
    prompts_sha256: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    eos_from: str = "model"
    other_ends: tuple[int, ...] = ()
    near_ties: int = 0
    template_sha256: str | None = None
    warned: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    branch_target: bool = False
    hidden: bool = False
    experts: ExpertsInfo | None = None
    mix: float = 0.0
    statistics: str = "plain"
    path_columns: tuple[str, ...] = ()
    bits: int = 0
    tokens: str = "all"
    lattice_columns: tuple[str, ...] = ()
    draft_ends: bool = False
    target_columns: tuple[str, ...] = ()
    shared_path: bool = False
    unordered: bool = False
    totals: bool = False
    shapes: tuple[str, ...] = ()
    width: int = 0
    coupling: str = "draft"
    source: SourceInfo | None = None
    outputs: OutputsInfo | None = None
    attached_to: str | None = None
    spec: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileInfo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lowest = {"max_draft": 1, "max_new_tokens": 1, "batch_size": 1, "n_prompts": 0}
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise TraceError(f"{name} must be >= {least}, not {getattr(self, name)}")
        for name, known in _WORDS.items():
            if (given := getattr(self, name)) not in get_args(known):
                words = ", ".join(get_args(known))
                raise TraceError(f"{name} must be one of {words}, not {given}")
        if self.bits and not FEWEST_BITS <= self.bits < FLOAT_BITS:
            raise TraceError(
                f"bits must be from {FEWEST_BITS} to {FLOAT_BITS - 1}, not {self.bits}"
            )
        if not 0 <= self.mix <= 1:
            raise TraceError(f"mix must be from 0 to 1, not {self.mix}")
        kind = self.drafter
        for other in drafters.BUILT_IN:
            for name in other.own:
                if name not in kind.own and getattr(self, name):
                    raise TraceError(
                        f"{name} is not for this trace, whose drafter is a {self.kind}"
                    )
        kind.check_header(self)
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
                raise TraceError(f"files names {name!r}, which is not inside the trace")

    @property
    def n_shards(self) -> int:
        """Shards of the whole recording."""
        return -(-self.n_prompts // self.batch_size)

    @property
    def tables(self) -> dict[str, pa.Schema]:
        """The sharded tables that every trace of this kind has; a shard has a file in each."""
        return self.drafter.tables(self)

    @property
    def drafter(self) -> DrafterKind:
        """The kind of drafter, which knows what its tables are and mean."""
        return drafters.get(self.kind)

    @property
    def shards(self) -> list[str]:
        """The files of the first of these tables: one for each shard that is whole."""
        return self.shard_files(next(iter(self.tables)))

    @property
    def with_state(self) -> list[str]:
        """The sharded tables with a wide column, `schema.WITH_STATE`, that were recorded."""
        there = {"hidden": self.hidden, "mixed": self.mix, "experts": self.experts}
        return [table for table, given in there.items() if given]

    def shard_files(self, table: str) -> list[str]:
        """The listed files of one folder ("positions", …), in order."""
        return sorted(name for name in self.files if name.startswith(f"{table}/"))

    def rows(self, table: str) -> int:
        """Rows of all listed files of one folder."""
        return sum(self.files[name].rows for name in self.shard_files(table))

    def content_hash(self) -> str:
        """A sha256 over the recording: the header and the recorded files, not what was added."""
        content = _content(replace(self, complete=True))
        recorded = {"sequences.parquet", *self.tables, *schema.WITH_STATE}
        content["files"] = {
            name: info for name, info in content["files"].items() if name.split("/")[0] in recorded
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of manifest.json, signed: always the same for equal manifests."""
        data = _sorted(_content(self))
        ordered = {"schema_version": data.pop("schema_version")} | data
        ordered[SIGNATURE] = signature.digest(ordered)
        return json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = MANIFEST) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            TraceError: not JSON, another schema version, or a field is missing or wrong; the
                message starts with `where`.
        """
        return _parse(text, where)[0]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the trace in a folder, complete or not.

    A manifest without a signature is of before there were any: it is read, with a warning.

    Raises:
        TraceError: no such folder, no manifest in it, or a bad one.
    """
    file = folder / MANIFEST
    if not folder.exists():
        raise TraceError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise TraceError(f"{folder}: not a folder, so not a trace")
    if not os.path.lexists(file):
        raise TraceError(f"{folder}: not a trace, it has no {MANIFEST}")
    text = reading.read_text(file, _MOST_BYTES, TraceError)
    found, is_signed = _parse(text, str(file))
    if not is_signed:
        signature.warn_unsigned(file, SIGNATURE)
    return found


def _parse(text: str, where: str) -> tuple[Manifest, bool]:
    """The manifest in a text, and whether the text is signed; see `Manifest.from_json`."""
    data = reading.parse_json(text, where, TraceError)
    if not isinstance(data, dict):
        raise TraceError(f"{where}: not a JSON object")
    _check_version(data.get("schema_version"), where)
    signed = data.pop(SIGNATURE, None)
    is_altered = signed is not None and signed != signature.digest(data)
    try:
        if isinstance(data.get("kind"), str):
            data["kind"] = drafters.stored_as(data["kind"])
        found = decode(Manifest, data)
    except (TraceError, RecordError) as error:
        raise TraceError(f"{where}: {error}") from None
    if is_altered:
        raise TraceError(f"{where}: corrupt: its {SIGNATURE} is not that of its content")
    return found, signed is not None


def _check_version(version: Any, where: str) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise TraceError(f"{where}: schema_version must be a whole number, not {in_json(version)}")
    known = f"this simkit reads version {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise TraceError(f"{where}: schema version {version} is too new, {known}: update simkit")
    if version < SCHEMA_VERSION:
        raise TraceError(f"{where}: schema version {version} is too old, {known}: record it again")


def _content(manifest: Manifest) -> dict[str, Any]:
    data = asdict(manifest)
    if manifest.source is not None and not manifest.source.notes:
        del data["source"]["notes"]
    for name, known in _WORDS.items():
        if data[name] == get_args(known)[0]:
            del data[name]
    left_out = (
        "mix",
        "source",
        "outputs",
        "experts",
        "other_ends",
        "near_ties",
        "template_sha256",
        "warned",
        "attached_to",
        "spec",
        "draft_ends",
        "path_columns",
        "bits",
        "totals",
        "set_aside",
        "settings",
    )
    for name in left_out:
        if not data[name] or (name == "settings" and manifest.complete):
            data.pop(name)
    for kind in drafters.BUILT_IN:
        for name in set(kind.own) - set(manifest.drafter.own):
            data.pop(name, None)
    data["kind"] = manifest.drafter.stored
    return data


def _sorted(data: dict[str, Any]) -> dict[str, Any]:
    """Fields in their order, the keys of open mappings by name."""
    for name in ("libraries", "files"):
        data[name] = dict(sorted(data[name].items()))
    for model in ("target", "draft"):
        if data[model] is not None:
            data[model]["shape"] = dict(sorted(data[model]["shape"].items()))
    return data
