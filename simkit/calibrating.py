"""Time a trace's own pair, from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkit.costs import Measured
from simkit.errors import LiveError
from simkit.overwrite_guard import check_apart, files_of
from traces.files import encode
from traces.outputs import check_room, write_atomic
from traces.parquet import sealed
from traces.trace import load
from traces.writer import add_file, folder_to_write

if TYPE_CHECKING:
    from simkit.live.interleave import Turns


def calibrate(
    trace: str | Path,
    target: str,
    draft: str,
    *,
    drafter: str | None = None,
    policy: Sequence[str] | None = None,
    head: Sequence[str] | None = None,
    n_prompts: int = 12,
    rounds: int = 3,
    max_new_tokens: int | None = None,
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    threads: int | None = None,
    turns: Turns = "sequence",
    log: str | Path | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """Time passes, rules and heads of a trace's own pair in running decoders; gives the cost.

    `trace` is a folder. The times are written into it, where its replays find them, or to the
    .parquet file `out`; `log` is one for every pass. Replays note where times are not to be
    trusted. Other args are those of `simkit calibrate --help`. `progress` is told how many outputs
    are decoded, and of how many.

    Raises:
        UserError: a number is out of range, the models are not the trace's, or a file is wrong.

    >>> pair = [f"{MODELS}/target", f"{MODELS}/draft"]
    >>> mine = simkit.record(pair[0], ["def add(a, b):"], "mine", pair[1], max_new_tokens=8)
    >>> cost = simkit.calibrate("mine", *pair, n_prompts=1, rounds=1, policy=["svip(h=0.5)"])
    >>> simkit.replay("mine", "fixed(2)", cost).records()[0]["speedup"] > 0
    True
    """
    calibration, pairs = _needed()
    there = load(trace, drafter)
    calibration.run.check_recorded(there)
    folder = "" if out else folder_to_write(there, trace, "give out=FILE.parquet")
    passes, times = _outputs(log, out, [trace, target, draft, *files_of(head)])
    ready = calibration.planned(there, policy, head, n_prompts, rounds, max_new_tokens)
    dtype = dtype or there.manifest.dtype or "float32"
    pair = pairs.load_pair(target, draft, device, dtype, revision)
    samples = calibration.timed(there, pair, ready, turns, threads, passes, progress)
    if times is None:
        add_file(folder, "latency.parquet", samples)
    else:
        write_atomic(times, encode(sealed(samples))[0])
    return Measured(file=None if times is None else str(times))


def _outputs(
    log: str | Path | None, out: str | Path | None, read: list[str | Path]
) -> Iterator[Path | None]:
    """The two files that are to be written, if any.

    Raises:
        LiveError: one has another ending.
        UserError: one cannot be written, or would take the place of the other or of what is read.
    """
    files = {name: Path(file) for name, file in (("log", log), ("out", out)) if file is not None}
    for name, file in files.items():
        if file.suffix != ".parquet":
            raise LiveError(f"{name}={file}: must be a .parquet file")
        check_room(file)
    check_apart(files.items(), read)
    return map(files.get, ("log", "out"))


def _needed() -> tuple[Any, Any]:
    """The modules that run models.

    Raises:
        LiveError: torch or transformers is not installed.
    """
    try:
        needed = "simkit.fidelity.calibration", "traces.record.pair"
        calibration, pairs = map(import_module, needed)
    except ModuleNotFoundError as error:
        raise LiveError(
            f"running models needs {error.name}: pip install 'draft-simkit[record]'"
        ) from None
    pairs.quiet()
    return calibration, pairs
