"""The tables of docs/costs.md, from the committed samples.

python -m benchmarks.gpu.atlas_table
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.gpu.grid import CONTROL, EAGER, FORWARD, GRAPH, HEAD, Pass, Rates, floor_s
from benchmarks.gpu.shapes import MODELS, TINY, ModelShape

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "traces" / "data" / "latency-atlas"
PAIRS = (
    ("deepseek-coder-1.3b", "deepseek-coder-33b"),
    ("deepseek-coder-6.7b", "deepseek-coder-33b"),
    ("llama-2-7b", "llama-2-13b"),
    ("qwen2.5-0.5b", "qwen2.5-14b"),
    ("qwen2.5-0.5b", "qwen2.5-32b"),
    ("qwen2.5-1.5b", "qwen2.5-32b"),
    ("pythia-160m", "pythia-6.9b"),
    ("qwen3-0.6b", "qwen3-8b"),
    ("qwen3-0.6b", "qwen3-14b"),
)
HOME = 512  # context length of the summary
READING = """## What it shows

- At batch 1 and {home} tokens of context a verification of 41 tokens takes {wide} times as long
  as a pass of one token. Up to there length costs the target next to nothing; draft passes do cost.
- Launched operation by operation, a one-token pass takes {eager} times as long as from a graph.
  Small models lose most, so eager runs see a cost ratio c far below that of graph runs. Eager
  times depend on the host's processor and scatter more.
- A graph still runs the library's many small kernels, about 0.1 ms a layer beyond the floor, which
  fused engines save: small models are far from their floor, large ones near it.
- At batch 16 and 8192 tokens of context, three tokens take {plain} times as long as one in models
  whose query heads have keys of their own, and {grouped} times in models with grouped keys. That
  fits an attention kernel that packs the query heads of a group for a single token only. With a
  kernel that packs them for several, large batches at long contexts would verify faster than here.
- Shapes have {fewest} to {most} samples, as the time budget of each model allowed.
"""
Samples = dict[tuple[str, Pass], list[float]]


def load(folder: Path) -> tuple[Samples, dict]:
    """Samples in seconds by (model, pass), and the manifest."""
    samples: Samples = {}
    for row in pq.read_table(folder / "latency.parquet").to_pylist():
        keys = ("component", "tokens_in", "context_len", "batch_size", "engine")
        key = (row["model"], Pass(*(row[k] for k in keys)))
        samples.setdefault(key, []).append(row["seconds"])
    return samples, json.loads((folder / "manifest.json").read_text())


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


class Page:
    """The page's sections, each a function of samples and manifest."""

    def __init__(self, samples: Samples, manifest: dict, statistics: dict | None):
        self.samples, self.manifest, self.statistics = samples, manifest, statistics
        self.medians = {key: float(np.median(v)) for key, v in samples.items()}
        self.rates = Rates(manifest["copy_bytes_per_s"], manifest["matmul_flops_per_s"])
        known = MODELS | TINY
        names = dict.fromkeys(name for name, _ in samples)
        self.shapes: dict[str, ModelShape] = {name: known[name] for name in names}

    def text(self) -> str:
        """All tables, behind the page's introduction."""
        parts = [
            self.device(),
            self.reading(),
            self.summary(),
            self.ratios(),
            self.heads(),
            self.drift(),
        ]
        parts += [self.pair_statistics()] if self.statistics else []
        parts += ["## All figures\n\nMilliseconds, and × the floor; empty: not measured.\n"]
        parts += [self.model(name) for name in self.shapes]
        return "\n".join(parts)

    def device(self) -> str:
        """What was measured on."""
        m = self.manifest
        n = sum(map(len, self.samples.values()))
        return (
            f"Measured on {m['device']}, driver {m['driver']}, torch {m['torch']}, transformers "
            f"{m['transformers']}: copy {m['copy_bytes_per_s'] / 1e12:.2f} TB/s (at the end "
            f"{m['copy_bytes_per_s_at_end'] / 1e12:.2f}), bfloat16 matrix product "
            f"{m['matmul_flops_per_s'] / 1e12:.0f} TFLOP/s, {n} samples of {len(self.samples)} "
            f"shapes in {m['seconds']:.0f} s. Attention differs from float64 by at most "
            f"{m['attention_error']:.1e} (relative, in norm).\n"
        )

    def cell(self, name: str, one: Pass) -> str:
        """Median in ms and × the floor, or nothing."""
        seconds = self.medians.get((name, one))
        if seconds is None:
            return ""
        floor, _ = floor_s(self.shapes[name], one, self.rates)
        return f"{seconds * 1e3:.2f} ×{seconds / floor:.1f}"

    def summary(self) -> str:
        """One row a model at batch 1."""
        tokens = (1, 3, 5, 9, 17, 41)
        rows = []
        for name, shape in self.shapes.items():
            passes = [Pass(FORWARD, n, HOME, 1, GRAPH) for n in tokens]
            floor = floor_s(shape, passes[0], self.rates)[0]
            weights = f"{shape.weight_bytes / 1e9:.1f}"
            cells = [self.cell(name, one) for one in passes]
            eager = self.cell(name, Pass(FORWARD, 1, 128, 1, EAGER))
            rows.append((name, weights, f"{floor * 1e3:.2f}", *cells, eager))
        header = (
            "model",
            "weights GB",
            "floor of 1 token",
            "1 token",
            *(f"{n} tokens" for n in tokens[1:]),
        )
        return (
            f"## Batch 1, {HOME} tokens of context, CUDA graph\n\nMilliseconds, × the floor.\n\n"
            + markdown([*header, "1 token, eager, context 128"], rows)
        )

    def ratio(self, name: str, above: Pass, below: Pass) -> float | None:
        """How much longer one pass of a model takes than another."""
        pair = self.medians.get((name, above)), self.medians.get((name, below))
        return pair[0] / pair[1] if pair[0] and pair[1] else None

    def reading(self) -> str:
        """What the figures show, with the figures that show it."""

        def span(above: Pass, below: Pass, grouped: bool | None = None) -> str:
            found = [
                self.ratio(name, above, below)
                for name, s in self.shapes.items()
                if grouped is None or grouped == (s.heads > s.kv_heads)
            ]
            known = [x for x in found if x]
            return f"{min(known):.2f} – {max(known):.2f}" if known else "—"

        one = Pass(FORWARD, 1, HOME, 1, GRAPH)
        wide = span(replace(one, tokens_in=41), one)
        eager = span(Pass(FORWARD, 1, 2048, 1, EAGER), replace(one, context_len=2048))
        far = replace(one, context_len=8192, batch_size=16)
        grouped, plain = (span(replace(far, tokens_in=3), far, g) for g in (True, False))
        counts = sorted(map(len, self.samples.values()))
        return READING.format(
            home=HOME, wide=wide, eager=eager, plain=plain, grouped=grouped,
            fewest=counts[0], most=counts[-1],
        )  # fmt: skip

    def ratios(self) -> str:
        """The cost ratio of the pairs that the papers use."""
        rows = []
        for draft, target in PAIRS:
            for engine, label, context in ((GRAPH, "CUDA graph", 2048), (EAGER, "eager", 2048)):
                one = self.medians.get((draft, Pass(FORWARD, 1, context, 1, engine)))
                t1 = self.medians.get((target, Pass(FORWARD, 1, context, 1, engine)))
                t5 = self.medians.get((target, Pass(FORWARD, 5, context, 1, engine)))
                if one and t1 and t5:
                    cells = (f"{x * 1e3:.2f}" for x in (one, t1, t5))
                    rows.append((f"{draft} → {target}", label, *cells, f"{t1 / one:.1f}"))
        header = ("pair", "engine", "T_draft ms", "T_target(1) ms", "T_verify(5) ms", "c")
        return (
            "## Cost ratios, batch 1, context 2048\n\nc = T_target(1) ÷ T_draft(1). Eager passes of"
            " small models are bound by launches, which caps c far below the ratio of sizes.\n\n"
            + markdown(header, rows)
        )

    def heads(self) -> str:
        """Head calls of the models that may draft."""
        rows = []
        for name in self.shapes:
            found = [p for m, p in self.medians if m == name and p.component == HEAD]
            for engine in (EAGER, GRAPH):
                ends = sorted({p.context_len for p in found})
                cells = [self.cell(name, Pass(HEAD, 4, c, 1, engine)) for c in ends]
                if any(cells):
                    rows.append((name, engine.replace("_", " "), *cells))
        ends = sorted({p.context_len for _, p in self.medians if p.component == HEAD})
        return (
            "## Head calls\n\nA head like PACER's (`benchmarks.gpu.engine.PacerHead`): one decoder"
            " layer of the draft's width with its own cache over the context, a depth embedding,"
            " the mean acceptance of a block of 4 tokens, copied to the host. Milliseconds, × the"
            " floor.\n\n" + markdown(("draft", "engine", *(f"context {c}" for c in ends)), rows)
        )

    def drift(self) -> str:
        """Both medians of every control."""
        rows = []
        for name, one in self.medians:
            if one.component == CONTROL:
                again = self.medians[name, one]
                first = self.medians[
                    name, Pass(FORWARD, one.tokens_in, one.context_len, 1, one.engine)
                ]
                shape = f"{one.tokens_in} behind {one.context_len}"
                count = len(self.samples[name, one])
                cells = (f"{first * 1e3:.3f}", f"{again * 1e3:.3f}", f"{again / first - 1:+.1%}")
                rows.append((name, shape, str(count), *cells))
        header = ("model", "shape", "samples", "ms", "again, ms", "apart")
        return "## Drift control\n\n" + markdown(header, rows)

    def model(self, name: str) -> str:
        """All figures of a model: a row for each engine, batch and context."""
        mine = [p for m, p in self.medians if m == name and p.component == FORWARD]
        rows = sorted({(p.engine, p.batch_size, p.context_len) for p in mine if p.context_len})
        tokens = sorted({p.tokens_in for p in mine if p.context_len})
        table = [
            (
                f"{engine.replace('_', ' ')}, {batch}, {context}",
                *(self.cell(name, Pass(FORWARD, n, context, batch, engine)) for n in tokens),
            )
            for engine, batch, context in rows
        ]
        prefills = [
            f"{p.engine.replace('_', ' ')} {p.tokens_in} tokens {self.cell(name, p)}"
            for p in sorted(mine, key=lambda p: (p.engine, p.tokens_in))
            if not p.context_len
        ]
        shape = self.shapes[name]
        return (
            f"### {name}\n\nShape of `{shape.source}`, {shape.parameters / 1e9:.2f} billion "
            f"weights, {shape.kv_bytes_per_token / 1024:.0f} KiB of keys and values a token. "
            f"Prefill: {'; '.join(prefills)}.\n\n"
            + markdown(("engine, batch, context", *map(str, tokens)), table)
        )

    def pair_statistics(self) -> str:
        """Time and error of the pair statistics."""
        known = self.statistics or {}
        rows = [
            (
                *(str(row[k]) for k in ("vocabulary", "dtype", "rows", "method")),
                f"{row['seconds'] * 1e6:.0f}",
                f"{row['bytes'] / row['seconds'] / 1e12:.2f}",
                f"{row['share_of_copy_bandwidth']:.0%}",
                f"{row['largest_error']:.1e}",
            )
            for row in best_rows(known["rows"])
        ]
        header = ("vocabulary", "dtype", "rows", "method", "µs", "TB/s", "share", "error")
        return (
            "## Pair statistics\n\nAll columns that a trace keeps of a (p, q) pair "
            "(`python -m benchmarks.gpu.pair_statistics --out FILE`): the plain code and the "
            "Triton kernel (block × warps × stages; the fastest of each case). Bytes are those of "
            "both rows read once; the kernel sweeps twice over a row, the second time for the "
            "overlap, and finds it in the L2 cache only where the rows in flight fit there. "
            f"`share` is of the copy bandwidth, {known['copy_bytes_per_s'] / 1e12:.2f} TB/s; "
            "`error` the largest absolute difference of any column from float64.\n\n"
            + markdown(header, rows)
        )


def best_rows(rows: Sequence[dict]) -> list[dict]:
    """Of every case the plain code and the fastest kernel."""
    cases: dict[tuple, list[dict]] = {}
    for row in rows:
        if "seconds" in row and "largest_error" in row:
            key = (row["vocabulary"], row["dtype"], row["rows"], row["method"] == "plain")
            cases.setdefault(key, []).append(row)
    return [min(case, key=lambda row: row["seconds"]) for case in cases.values()]


def page(folder: Path) -> str:
    """The tables for the samples in a folder, as Markdown."""
    samples, manifest = load(folder)
    extra = folder / "pair-statistics.json"
    return Page(
        samples, manifest, json.loads(extra.read_text()) if extra.is_file() else None
    ).text()


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Print the tables of the latency atlas.")
    parser.add_argument("--data", type=Path, default=DATA)
    print(page(parser.parse_args(argv).data))


if __name__ == "__main__":
    main()
