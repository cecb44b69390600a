"""Where commands put what they make: known to be writable before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from simkit.cli.tables import tell
from simkit.overwrite_guard import check_apart

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.study import Study
    from traces.trace import Trace


def destination(out: Path | None, option: str = "--out") -> str:
    """What an option gives, "", "file" or "trace", if it can be written; known before measuring."""
    from traces.errors import UserError
    from traces.finding import find

    if out is None:
        return ""
    if out.suffix == ".parquet":
        check_option(option, out)
        return "file"
    if not (out / "manifest.json").is_file():
        raise UserError(f"{option} {out}: neither a trace (no manifest.json) nor a .parquet file")
    find(out)  # it is finished
    check_option(option, out / "latency.parquet")
    return "trace"


def announce(out: Path | None, kind: str) -> None:
    """Say that a trace's samples will be replaced, if it has any."""
    if out and kind == "trace" and (out / "latency.parquet").exists():
        print(f"{out} has timing samples already: they will be replaced")


def check_option(option: str, file: Path) -> None:
    """Refuse a file that cannot be written, by the name of its option."""
    from traces.errors import TraceError, UserError
    from traces.outputs import check_room

    try:
        check_room(file)
    except TraceError as error:
        raise UserError(f"{option} {error}") from None


def check_outputs(
    outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[str | Path | None]
) -> None:
    """`check_option` of all outputs that there are, then `check_apart`."""
    there = [(option, file) for option, file in outputs if file is not None]
    for option, file in there:
        check_option(option, file)
    check_apart(there, inputs)


def drafted(trace: str, drafter: str | None) -> str:
    """The folder of an attached drafter, which is read as a trace; the trace's name without one."""
    if drafter is None:
        return trace
    from traces.finding import find

    return str(find(trace, drafter)[0])


def opened(trace: str, drafter: str | None, memory: int | None) -> Trace | str:
    """A trace as `drafted` names it, or, at a bounded memory, open: read in windows."""
    if memory is None:
        return drafted(trace, drafter)
    from traces.streamed import stream

    return stream(trace, drafter, memory)


def warn(samples: pa.Table) -> None:
    """Say on stderr if timing samples are not to be trusted."""
    import sys

    from traces.conditions import conditions

    if said := conditions(samples).warning:
        print(f"simkit: warning: {said}", file=sys.stderr)


def tell_times(study: Study, cost: str | None) -> None:
    """Say on stderr what a reader of the times should know, as `replay` does, and of parts absent.

    Where there are none, or they cannot be used, what needs them says why.
    """
    from traces.bundle import more_of
    from traces.errors import UserError

    tell(more_of((study.trace.recording or study.trace).path))
    try:
        charge = study.charge(cost)
    except UserError:
        return
    tell(charge.remarks if charge else [])


def write(out: Path, kind: str, table: pa.Table) -> None:
    """Put samples into a trace or a file; `kind` is what `destination` said."""
    if kind == "trace":
        from traces.writer import add_file

        add_file(out, "latency.parquet", table)
    else:
        from traces.files import encode
        from traces.outputs import write_atomic
        from traces.parquet import sealed

        write_atomic(out, encode(sealed(table))[0])
