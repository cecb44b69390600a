"""Pair statistics on a GPU: time against the memory's ceiling, and error against float64.

    python -m benchmarks.gpu.pair_statistics --out FILE.json

Two implementations of the same columns: the plain one (`traces.record.statistics`) and the Triton
kernel (`traces.record.statistics_triton`, several block sizes). Logits are random, each row with a
scale of its own, from nearly uniform to nearly certain; the target's are the draft's with noise.
"Bytes" are those of both rows read once; the kernel sweeps twice, so where the second sweep misses
the cache it moves up to twice as many.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu import device_rates
from benchmarks.gpu.delivery import write_json
from traces.record import statistics, statistics_triton
from traces.record.latency import timed
from traces.record.statistics import LogitRows

VOCABULARIES = (32_000, 128_256, 151_936)
# Tokens in a block, warps of a program, blocks whose loads are in flight.
CONFIGS = ((1024, 4, 1), (1024, 4, 3), (1024, 8, 1), (1024, 8, 3), (1024, 8, 4), (2048, 8, 3))
CHECK_ROWS = 264

Columns = dict[str, Tensor]


def logits(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random (p, q) logits (rows, size) with scales from 0.3 to 10 nats."""
    scale = torch.logspace(-0.5, 1, rows, device=device)[:, None]
    q = torch.randn(rows, size, device=device)
    p = q + 0.3 * torch.randn(rows, size, device=device)
    return (p * scale).to(dtype), (q * scale).to(dtype)


def plain(p: Tensor, q: Tensor, token: Tensor) -> Columns:
    """The columns by the plain code, from logits to float32."""
    p_rows, q_rows = LogitRows(p, 1.0), LogitRows(q, 1.0)
    columns = statistics.draft_statistics(q_rows, token)
    return columns | statistics.target_statistics(p_rows, q_rows, token)


def kernel(block: int, warps: int, stages: int) -> Callable[[Tensor, Tensor, Tensor], Columns]:
    """The raw columns by the kernel."""

    def run(p: Tensor, q: Tensor, token: Tensor) -> Columns:
        raw = statistics_triton.raw_statistics(p, q, token, block=block, warps=warps, stages=stages)
        return raw.floats

    return run


def methods(device: torch.device) -> Iterator[tuple[str, Callable[..., Columns]]]:
    """The implementations to compare, by name."""
    yield "plain", plain
    if device.type == "cuda":
        for config in CONFIGS:
            yield "triton {}x{}x{}".format(*config), kernel(*config)


def errors(
    run: Callable[..., Columns], size: int, dtype: torch.dtype, device: torch.device
) -> dict:
    """Largest absolute error of each column against float64 on fresh rows."""
    p, q = logits(CHECK_ROWS, size, dtype, device)
    token = torch.multinomial(q[:, :20_000].float().softmax(-1), 1)[:, 0]
    exact = plain(p.double(), q.double(), token)
    got = run(p, q, token)
    return {k: float((got[k].double() - exact[k].double()).abs().max()) for k in exact if k in got}


def measure(
    run: Callable[..., Columns], p: Tensor, q: Tensor, repeats: int
) -> dict[str, float | list[float]]:
    """Median seconds of one call, and all samples."""
    token = torch.randint(0, q.shape[1], (q.shape[0],), device=q.device)
    samples = [timed(lambda: run(p, q, token), q.device) for _ in range(repeats + 3)][3:]
    return {"seconds": float(np.median(samples)), "samples": samples}


def run(
    device: torch.device, total_bytes: float, vocabularies: Sequence[int], repeats: int
) -> dict:
    """Measure every implementation at every vocabulary, dtype and number of rows."""
    rates = device_rates.measure(device)
    rows: list[dict] = []
    for size in vocabularies:
        for dtype in (torch.float32, torch.bfloat16):
            large = max(1, int(total_bytes / (2 * size * dtype.itemsize)))
            for count in sorted({min(64, large), large}):
                rows += _case(device, size, dtype, count, repeats, rates.copy_bytes_per_s)
    known = device_rates.describe(device) | {"copy_bytes_per_s": rates.copy_bytes_per_s}
    return known | {"rows": rows}


def _case(
    device: torch.device, size: int, dtype: torch.dtype, count: int, repeats: int, ceiling: float
) -> list[dict]:
    p, q = logits(count, size, dtype, device)
    n_bytes = 2 * count * size * dtype.itemsize
    found = []
    for name, method in methods(device):
        row = {"method": name, "vocabulary": size, "dtype": str(dtype).removeprefix("torch.")}
        row |= {"rows": count, "bytes": n_bytes}
        try:
            row |= measure(method, p, q, repeats)
            row["share_of_copy_bandwidth"] = n_bytes / row["seconds"] / ceiling
            row["errors"] = errors(method, size, dtype, device)
            row["largest_error"] = max(row["errors"].values())
        except Exception as error:  # one that fails must not take the others along
            row["error"] = f"{type(error).__name__}: {error}"[:2000]
        found.append(row)
        brief = {k: v for k, v in row.items() if k not in ("samples", "errors")}
        print(json.dumps(brief), flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure the pair statistics.")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bytes", type=float, default=2e9, help="of the larger logits")
    parser.add_argument("--vocabularies", default=",".join(map(str, VOCABULARIES)))
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args(argv)
    sizes = [int(v) for v in arguments.vocabularies.split(",")]
    torch.manual_seed(0)
    with torch.inference_mode():
        result = run(torch.device(arguments.device), arguments.bytes, sizes, arguments.repeats)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
