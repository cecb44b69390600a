"""Latency atlas: seconds of draft passes, verifications, prefills and head calls of many models.

    python -m benchmarks.gpu.latency_atlas --out DIR            (one GPU, about six minutes)
    python -m benchmarks.gpu.latency_atlas --out DIR --device cpu --shapes tiny

Weights are random bfloat16 at each model's true shape. Models run one after another, the largest
last. Within a model every shape is warmed before any is timed, then rounds go over all shapes of
both engines in a shuffled order; one shape is measured twice as a drift control. What a sample
holds is said in `traces.record.latency` and `benchmarks.gpu.engine`. After each model the raw
samples (latency.parquet) and what is known of the run (manifest.json) are written anew, so that a
run that is cut short keeps what it has; `--resume` goes on with the models that are missing.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.gpu import device_rates
from benchmarks.gpu.engine import Engine, attention_error
from benchmarks.gpu.grid import (
    CONTROL,
    EAGER,
    FULL,
    GRAPH,
    SMALL,
    Grid,
    Pass,
    Rates,
    expected_s,
    fits,
    passes,
)
from benchmarks.gpu.shapes import MODELS, TINY, ModelShape
from traces import schema
from traces.files import encode
from traces.outputs import write_together
from traces.record.latency import no_collection, timed

SCHEMA = schema.LATENCY.insert(0, pa.field("model", pa.string(), nullable=False))
HEAD_LIMIT = 9e9  # models with fewer parameters are also drafts, and get a head
RESERVE_BYTES = 6e9  # of device memory, for activations and captured graphs
LEAST_ROUNDS = 3
WARM_UPS = 2


@dataclass(frozen=True)
class Settings:
    """What a run measures, and for how long."""

    device: torch.device
    models: dict[str, ModelShape]
    grid: Grid
    engines: tuple[str, ...]
    rounds: int
    seconds: float
    seed: int


class Atlas:
    """The rows and the manifest of a run, written to a folder after each model."""

    def __init__(self, folder: Path, resume: bool):
        self.folder, self.rows = folder, []
        self.manifest: dict = {"models": {}}
        folder.mkdir(parents=True, exist_ok=True)
        if resume and (folder / "manifest.json").is_file():
            self.manifest = json.loads((folder / "manifest.json").read_text())
            self.rows = pq.read_table(folder / "latency.parquet").to_pylist()

    @property
    def done(self) -> set[str]:
        """Models that are in it."""
        return set(self.manifest["models"])

    def add(self, name: str, rows: list[dict], report: dict) -> None:
        """Keep one model's samples and report, and write both files."""
        self.rows += rows
        self.manifest["models"][name] = report
        self.write()

    def write(self) -> None:
        """Write both files."""
        table = pa.Table.from_pylist(self.rows, schema=SCHEMA)
        text = json.dumps(self.manifest, indent=1) + "\n"
        contents = {"latency.parquet": encode(table)[0], "manifest.json": text.encode()}
        write_together({self.folder / name: data for name, data in contents.items()})


def run(settings: Settings, atlas: Atlas) -> None:
    """Measure all models that the atlas lacks."""
    started = time.monotonic()
    device = settings.device
    gc.freeze()  # so that a collection before each capture has little to look at
    rates = device_rates.measure(device)
    _release(device)
    atlas.manifest |= device_rates.describe(device) | {
        "dtype": "bfloat16",
        "copy_bytes_per_s": rates.copy_bytes_per_s,
        "matmul_flops_per_s": rates.matmul_flops_per_s,
        "attention": "flash" if device.type == "cuda" else "scaled_dot_product",
        "attention_error": attention_error(device),
        "seed": settings.seed,
    }
    print(json.dumps({k: v for k, v in atlas.manifest.items() if k != "models"}), flush=True)
    left = [s for s in settings.models.values() if s.name not in atlas.done]
    costs = {s.name: _expected_model_s(s, settings, rates) for s in left}
    for i, shape in enumerate(left):
        now = time.monotonic() - started
        share = costs[shape.name] / sum(costs[s.name] for s in left[i:])
        deadline = time.monotonic() + share * max(0.0, settings.seconds - now)
        failed = False
        try:
            rows, report = measure_model(shape, settings, rates, deadline)
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            rows, report, failed = [], {"error": str(error).splitlines()[0]}, True
        atlas.add(shape.name, rows, report)
        print(f"{time.monotonic() - started:6.1f} s  {shape.name}: {_brief(report)}", flush=True)
        if failed:
            _check(device)
    atlas.manifest["copy_bytes_per_s_at_end"] = device_rates.measure(device).copy_bytes_per_s
    atlas.manifest["seconds"] = atlas.manifest.get("seconds", 0) + time.monotonic() - started
    atlas.write()


def measure_model(
    shape: ModelShape, settings: Settings, rates: Rates, deadline: float
) -> tuple[list[dict], dict]:
    """Build, warm, time and forget one model.

    Args:
        shape: the model.
        settings: of the run.
        rates: of the device, to leave out what does not fit.
        deadline: on the monotonic clock; no round starts after it, but for the first few.

    Returns:
        Rows of `SCHEMA`, and a report for the manifest.
    """
    built = time.monotonic()
    wanted = passes(settings.grid, settings.engines, shape.parameters < HEAD_LIMIT)
    room = _free_bytes(settings.device) - shape.weight_bytes - RESERVE_BYTES
    fitting = [one for one in wanted if fits(shape, one, room)]
    skipped = {str(tuple(asdict(p).values())): "memory" for p in wanted if p not in fitting}
    ready: dict[Pass, Callable[[], object]] = {}
    try:
        engine = Engine(shape, settings.device, fitting, settings.seed)
        warming = time.monotonic()
        with torch.inference_mode(), no_collection():
            for one in fitting:
                try:
                    ready[one] = _warmed(engine, one)
                except RuntimeError as error:
                    _check(settings.device)
                    skipped[str(tuple(asdict(one).values()))] = str(error).splitlines()[0]
            timing = time.monotonic()
            samples = _rounds(ready, settings, deadline)
    finally:
        ready.clear()
        engine = None
        _release(settings.device)
    sizes = ("parameters", "weight_bytes", "read_bytes", "kv_bytes_per_token")
    report = asdict(shape) | {name: getattr(shape, name) for name in sizes} | {
        "build_s": warming - built,
        "warm_s": timing - warming,
        "timing_s": time.monotonic() - timing,
        "rounds": {e: 1 + max((r for p, r, _ in samples if p.engine == e), default=-1)
                   for e in settings.engines},
        "skipped": skipped,
        "control": _control(samples),
    }  # fmt: skip
    return [_row(shape, settings.device, *sample) for sample in samples], report


def _warmed(engine: Engine, one: Pass) -> Callable[[], object]:
    call = engine.prepare(one)
    for _ in range(WARM_UPS):
        call()
    return call


def _rounds(
    ready: dict[Pass, Callable[[], object]], settings: Settings, deadline: float
) -> list[tuple[Pass, int, float]]:
    """Rounds over all shapes in shuffled order; eager passes are in every second one."""
    rng = np.random.default_rng(settings.seed)
    samples: list[tuple[Pass, int, float]] = []
    order = list(ready)
    for number in range(settings.rounds):
        for i in rng.permutation(len(order)):
            one = order[i]
            if one.engine == EAGER and number % 2:
                continue
            if number >= LEAST_ROUNDS and time.monotonic() > deadline:
                return samples
            repeat = number // 2 if one.engine == EAGER else number
            samples.append((one, repeat, timed(ready[one], settings.device)))
    return samples


def _control(samples: Sequence[tuple[Pass, int, float]]) -> dict | None:
    """Both medians of the shape that was measured twice, in seconds."""
    again = [s for p, _, s in samples if p.component == CONTROL]
    if not again:
        return None
    second = next(p for p, _, _ in samples if p.component == CONTROL)
    key = (second.tokens_in, second.context_len, second.batch_size, second.engine)
    first = [
        s
        for p, _, s in samples
        if p.component == "forward" and (p.tokens_in, p.context_len, p.batch_size, p.engine) == key
    ]
    shape = {"tokens_in": key[0], "context_len": key[1], "engine": key[3]}
    return shape | {"first_s": float(np.median(first)), "again_s": float(np.median(again))}


def _row(
    shape: ModelShape, device: torch.device, one: Pass, repeat: int, seconds: float
) -> dict[str, object]:
    known = {"model": shape.name, "dtype": "bfloat16", "device": device_rates.device_name(device)}
    return known | asdict(one) | {"seconds": seconds, "repeat": repeat}


def _expected_model_s(shape: ModelShape, settings: Settings, rates: Rates) -> float:
    """A guess of the seconds that a model takes, to divide the budget."""
    total = 3 + 3e-9 * shape.parameters * 0.2
    for one in passes(settings.grid, settings.engines, shape.parameters < HEAD_LIMIT):
        rounds = settings.rounds / 2 if one.engine == EAGER else settings.rounds
        total += expected_s(shape, one, rates) * (WARM_UPS + rounds)
        total += shape.layers * 2.5e-3 if one.engine == GRAPH else 0  # capture
    return total


def _free_bytes(device: torch.device) -> float:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1e10


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _check(device: torch.device) -> None:
    """Raise if the device can no longer be used (then only a new process helps)."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _brief(report: dict) -> str:
    keys = ("error", "build_s", "warm_s", "timing_s", "rounds", "control")
    brief = {k: report[k] for k in keys if k in report}
    return json.dumps(brief | {"skipped": len(report.get("skipped", ()))})


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings."""
    device = torch.device(arguments.device)
    tiny = arguments.shapes == "tiny"
    models = TINY if tiny else MODELS
    if arguments.models:
        models = {name: models[name] for name in arguments.models.split(",")}
    engines = tuple(arguments.engines.split(","))
    if device.type != "cuda":
        engines = (EAGER,)
    return Settings(
        device=device,
        models=models,
        grid=SMALL if tiny else FULL,
        engines=engines,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        seed=arguments.seed,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure the latency atlas.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", choices=("full", "tiny"), default="full")
    parser.add_argument("--models", help="names with commas between; default: all")
    parser.add_argument("--engines", default=f"{EAGER},{GRAPH}")
    parser.add_argument("--rounds", type=int, default=12, help="at most, for each shape")
    parser.add_argument("--seconds", type=float, default=400.0, help="budget of the whole run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep the models already there")
    arguments = parser.parse_args(argv)
    run(settings_of(arguments), Atlas(arguments.out, arguments.resume))


if __name__ == "__main__":
    main()
