"""`simkit import`: other programs' files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simkit.cli import import_logs
from simkit.cli.groups import grouped
from simkit.cli.import_logs import Found, LogOptions
from simkit.cli.tables import tell
from simkit.overwrite_guard import check_apart
from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from traces.trace import Trace


ImportSource = Literal[
    "specdecode-bench",
    "spec-bench",
    "tokens",
    "vllm",
    "sglang",
    "aiperf",
    "tensorrt-llm",
    "llama.cpp",
    "openvino",
    "profile",
]


Align = Literal["simulator", "measured"]


@dataclass(frozen=True)
class BenchOptions:
    """Options of specdecode-bench."""

    drafter: Annotated[
        str | None,
        typer.Option(
            help="For specdecode-bench: drafter to import, NAME of a field acc_NAME. Default: the"
            " only one; eagle if there are several."
        ),
    ] = None
    align: Annotated[
        Align | None,
        typer.Option(
            help="For specdecode-bench: what the first entry of acc_len counts. simulator: the"
            " step after the prefill's token, as that program's simulator assumes. measured:"
            " the position where it was measured. Default: simulator."
        ),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(
            help="For specdecode-bench: import this many records, drawn at random. Default: all."
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(help="Seed of --sample, or of the random draws of a profile's import.")
    ] = 42


@dataclass(frozen=True)
class ProfileOptions:
    """Options of profiles."""

    requests: Annotated[
        int | None, typer.Option(help="For profile: number of synthetic requests. Default: 200.")
    ] = None
    tokens: Annotated[
        int | None, typer.Option(help="For profile: approximate tokens per request. Default: 256.")
    ] = None


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Folder of the new trace; for spec-bench a .parquet file or a folder. Required"
        " without --check.",
        show_default=False,
    ),
]
Eos = Annotated[
    list[int] | None,
    typer.Option(help="For tokens: id of a token that ends outputs. Repeat it for several."),
]


@grouped
def import_(
    format: Annotated[
        ImportSource, typer.Argument(help="Program that wrote the file, or the file's format.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON Lines file. For llama.cpp also its log; for profile JSON or"
            " Prometheus metrics."
        ),
    ],
    *,
    out: Out = None,
    records: BenchOptions,
    eos: Eos = None,
    logs: LogOptions,
    profiles: ProfileOptions,
) -> None:
    """Import another program's file: a trace where it holds enough for one, else a table."""
    _check_options(format, records, eos, logs, profiles)
    if logs.check:
        if out is not None:
            raise typer.BadParameter("--check writes no trace: leave out --out")
        import_logs.check(format, file, logs)
        return
    if out is None:
        raise typer.BadParameter("--out is missing: name the folder of the new trace")
    _check_suffix(format, out)
    check_apart([("--out", out)], [file])
    if format == "spec-bench":
        return _spec_bench(file, out)
    from traces.outputs import check_free
    from traces.writer import save

    check_free(out)
    if format == "specdecode-bench":
        found = _specdecode_bench(file, records)
    elif format == "tokens":
        found = _tokens(file, out, eos or [])
    elif format == "profile":
        found = _profile(file, profiles, records.seed)
    else:
        found = import_logs.imported(format, file, out, logs)
    save(found.trace, out, batch_size=1024)
    for line in (f"{out}: {found.said}", *found.more):
        typer.echo(line)
    tell(found.notes)


def _check_options(
    format: ImportSource,
    records: BenchOptions,
    eos: list[int] | None,
    logs: LogOptions,
    profiles: ProfileOptions,
) -> None:
    """Refuse options of other formats."""
    of_logs = logs.shared_path or logs.passes or logs.check
    of_bench = records.drafter or records.align or records.sample is not None
    of_profiles = profiles.requests is not None or profiles.tokens is not None
    rules = (
        (eos, "--eos is", ("tokens",)),
        (logs.draft_length is not None, "--draft-length is", import_logs.SUMMED),
        (of_logs, "--check, --shared-path and --passes are", import_logs.NAMES),
        (of_bench, "--drafter, --align and --sample are", ("specdecode-bench",)),
        (of_profiles, "--requests and --tokens are", ("profile",)),
    )
    for given, options, formats in rules:
        if given and format not in formats:
            raise typer.BadParameter(f"{options} for {', '.join(formats)}")


def _check_suffix(format: ImportSource, out: Path) -> None:
    """A folder with the name of a file is what nobody asked for."""
    from simkit.errors import ImporterError

    is_table = format == "spec-bench"
    if out.suffix in (".csv", ".json", ".jsonl") or (out.suffix == ".parquet" and not is_table):
        wanted = "a .parquet file or a folder" if is_table else "a folder, the trace's"
        raise ImporterError(f"--out {out}: must be {wanted}")


def _specdecode_bench(file: Path, asked: BenchOptions) -> Found:
    from simkit.importers import specdecode_bench

    trace, taken, others, notes = specdecode_bench.load(
        file, asked.drafter, asked.align or "simulator", asked.sample, asked.seed
    )
    said = f"{_size(trace, 'sequence')}, {how_many(trace.n_lattice_rows, 'lattice row')} of {taken}"
    several = others and asked.drafter is None
    too = [f"the file has {', '.join(others)} too: --drafter NAME takes another"] if several else []
    return Found(trace, said, (*too, *notes, *_twins(trace)))


def _tokens(file: Path, out: Path, eos: list[int]) -> Found:
    from simkit.importers import tokens

    trace = tokens.read(file, eos)
    adds = f"simkit attach {out} --drafter prompt_lookup adds a drafter"
    return Found(trace, f"{_size(trace, 'sequence')}; {adds}", _twins(trace))


def _profile(file: Path, asked: ProfileOptions, seed: int) -> Found:
    from simkit.importers import profile

    sizes = {"n_requests": asked.requests, "n_tokens": asked.tokens}
    given = {name: value for name, value in sizes.items() if value is not None}
    trace, notes = profile.load(file, **given, seed=seed)
    drafts = f"drafts of up to {trace.max_draft} tokens"
    return Found(trace, f"{_size(trace, 'synthetic request')}; {drafts}", notes=notes)


def _size(trace: Trace, what: str) -> str:
    return f"{how_many(trace.n_sequences, what)}, {how_many(trace.n_positions, 'position')}"


def _twins(trace: Trace) -> list[str]:
    """What to say of records that share an id."""
    ids = [name for name in trace.sequences["id"].to_pylist() if name is not None]
    twice = len(ids) - len(set(ids))
    records = how_many(twice, "record has", "records have")
    return [f"{records} the id of an earlier one: each counts as a prompt"] if twice else []


def _spec_bench(file: Path, out: Path) -> None:
    from simkit.importers import spec_bench
    from traces.files import encode
    from traces.outputs import write_atomic

    table = spec_bench.read(file)
    target = out if out.suffix == ".parquet" else out / "spec-bench.parquet"
    write_atomic(target, encode(table)[0])
    _print(table)
    whole = table.slice(0, 1).to_pylist()[0]
    if whole["repeated"]:
        twice = how_many(whole["repeated"], "record has", "records have")
        typer.echo(f"{twice} the id of an earlier one: each counts as a question")
    if whole["mismatches"]:
        typer.echo(
            f"{whole['mismatches']:,} of {whole['answers']:,} answers have decoding_steps or"
            " new_tokens that accept_lengths contradicts: speeds take the former, steps the latter"
        )
    typer.echo(f"written to {target}")


def _print(table: pa.Table) -> None:
    from simkit.cli import tables

    rows = table.to_pylist()
    depths = range(1, min(8, max(row["depth"] for row in rows)) + 1)
    heads = "category", "questions", "steps", "tokens/s", "accepted/step"
    shown = []
    for first in (row for row in rows if row["depth"] == 1):
        mine = {row["depth"]: row for row in rows if row["category"] == first["category"]}
        cells = [
            f"{_share(mine[d]['marginal'])} ({_share(mine[d]['conditional'])})" if d in mine else ""
            for d in depths
        ]
        numbers = (
            first["category"] or "all",
            f"{first['questions']:,}",
            f"{first['steps']:,}",
            _number(first["tokens_per_s"], 1),
            _number(first["accepted_per_step"], 2),
        )
        shown.append((*numbers, *cells))
    print("marginal (conditional) acceptance by depth")
    tables.say(tables.table((*heads, *(f"a ≥ {depth}" for depth in depths)), shown))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
