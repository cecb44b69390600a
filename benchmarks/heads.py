"""Learned heads: held-out figures, the speed of scoring, and live scores against the tables.

python -m benchmarks.heads            # what the bundled heads know, from their sidecars
python -m benchmarks.heads --speed    # (start, depth) pairs scored a second
python -m benchmarks.heads --live     # live scores against the score table, last bit included
python -m benchmarks.heads --compare TRACE HEAD …    # held-out figures with intervals over prompts;
                                      # TRACE is the one with states that they were trained on
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.recorded import REFERENCE
from simkit.drafters.path import PathLayout
from simkit.heads import evaluate, files, metrics, registry, scoring, states, training
from simkit.heads.drafts import drafts
from simkit.heads.files import Head
from simkit.heads.plain_scorer import PlainScorer
from simkit.heads.states import States
from simkit.heads.training_data import RecordedRows
from traces.record.header import make_header
from traces.record.pair import Pair, load_pair, quiet
from traces.record.plan import Plan
from traces.record.prompts import read_prompts
from traces.record.recorder import record
from traces.scores import RowScores, StartScores
from traces.synthetic import iid
from traces.trace import Trace, load

HEADS = Path(REFERENCE) / "heads"
REAL_HEADS = Path("traces/smollm2/heads")


def known(console: Console) -> None:
    """Print the held-out figures of every bundled head."""
    for file in [*sorted(HEADS.glob("*.safetensors")), *sorted(REAL_HEADS.glob("*.safetensors"))]:
        head = files.load(file)
        figures, how = head.facts["metrics"], head.facts["training"]
        names = list(next(iter(figures["signals"].values())))
        said = f"{figures['tokens']:,} tokens of {how['test_prompts']} prompts"
        title = f"{file.parts[-3]}, {file.stem}: {said}"
        table = Table("", *names, title=title, title_justify="left")
        for signal, row in figures["signals"].items():
            table.add_row(signal, *(f"{row[name]:.3f}" for name in names))
        console.print(table)


def speed(console: Console, threads: int) -> None:
    """Pairs a second of the whole scoring of made-up sequences, and of one call a pair."""
    torch.set_num_threads(threads)
    trace = iid(24, 256, 0.8, max_draft=40, seed=0)
    layout = PathLayout(trace)
    for width in (96, 128):
        found = _states(trace, width)
        options = registry.get("pacer").settle({})
        head = Head("pacer", width, options, files.build("pacer", width, options).eval())
        best, cpu = np.inf, np.inf
        for _ in range(5):
            wall, used = time.perf_counter(), time.process_time()
            table = scoring.score(head, layout, found)
            best = min(best, time.perf_counter() - wall)
            cpu = min(cpu, time.process_time() - used)
        assert isinstance(table, StartScores)
        n = np.count_nonzero(~np.isnan(table.values))
        one = _one_by_one(head, layout, found)
        console.print(
            f"width {width}: {n:,} pairs, {n / best:,.0f} a second on {threads} threads"
            f" ({n / cpu:,.0f} a CPU second); one call a pair: {one:,.0f} a second"
        )


def _states(trace: Trace, width: int) -> States:
    rng = np.random.default_rng(0)

    def some(rows: int) -> np.ndarray:
        return rng.normal(size=(rows, width)).astype(np.float16)

    n_prompt = np.arange(trace.n_sequences + 1) * 100  # rows of prompt before each output
    return States(
        prompt=some(int(n_prompt[-1])),
        path=some(trace.n_positions),
        branches=some(trace.n_branch_rows),
        prompt_offsets=n_prompt,
        path_offsets=trace.position_offsets,
    )


def _one_by_one(head: Head, layout: PathLayout, found: States) -> float:
    torch.set_num_threads(1)
    scorer, rows = PlainScorer(head), drafts(layout, found, 0, 40)
    start, done = time.perf_counter(), 0
    for first in range(0, len(rows.index), 16):
        n_prefix = int(rows.n_prefix[first])
        for depth in range(1, int(rows.length[first]) + 1, 4):
            tokens = rows.rows[rows.index[first, :depth]]
            text = np.concatenate([rows.rows[:n_prefix], tokens])
            scorer.score(torch.from_numpy(text), n_prefix)
            done += 1
    return done / (time.perf_counter() - start)


def live(console: Console, n_prompts: int) -> None:
    """Record some prompts as a batch; then read their drafts one by one, as a live decoder does."""
    quiet()
    torch.set_num_threads(1)
    for dtype in ("float32", "float64"):
        pair = load_pair(f"{REFERENCE}/models/target", f"{REFERENCE}/models/draft", "cpu", dtype)
        prompts = read_prompts(Path(REFERENCE) / "prompts.jsonl", pair.tokenizer, pair.vocab_size)
        some = prompts[:: len(prompts) // n_prompts][:n_prompts]
        plan = Plan(
            max_new_tokens=64, eos_token_ids=pair.eos_token_ids, hidden=True, batch_size=n_prompts
        )
        with tempfile.TemporaryDirectory() as folder:
            record(pair, some, folder + "/trace", plan, make_header(pair, some, plan))
            trace = load(folder + "/trace")
            for kind in registry.names():
                head = files.load(HEADS / f"{kind}.safetensors")
                _compare(console, dtype, pair, trace, head)


def _compare(console: Console, dtype: str, pair: Pair, trace: Trace, head: Head) -> None:
    layout, found = PathLayout(trace), states.read(trace)
    table, scorer = scoring.score(head, layout, found), PlainScorer(head)
    stored, again = [], []
    for row, source, n_prefix, passed in _drafts(pair, trace, layout, found):
        for depth in range(1, len(source) + 1):
            if isinstance(table, StartScores):
                stored.append(table.values[row, depth - 1])
            else:
                assert isinstance(table, RowScores)
                stored.append(np.concatenate([table.path, table.branches])[source[depth - 1]])
            again.append(scorer.score(passed[: n_prefix + depth], n_prefix))
    a, b = (np.array(values, np.float16).view(np.int16).astype(int) for values in (stored, again))
    console.print(
        f"{head.kind}, models in {dtype}: {len(a):,} scores, {np.mean(a == b):.2%} the same bits,"
        f" the others at most {np.max(abs(a - b))} float16 steps apart"
    )


def _drafts(
    pair: Pair, trace: Trace, layout: PathLayout, found: States
) -> Iterator[tuple[int, np.ndarray, int, torch.Tensor]]:
    """Every eighth draft: its row, its tokens' places, its prefix, and a pass of the draft over it.

    Places are rows of positions, or n_positions + rows of branches.
    """
    drafted = np.concatenate([trace.positions("draft_token"), trace.branches("draft_token")])
    for sequence in range(trace.n_sequences):
        rows = drafts(layout, found, sequence, 40)
        prompt, output = (
            trace.sequences[name][sequence].as_py() for name in ("prompt_tokens", "output_tokens")
        )
        for start in range(0, len(output), 8):
            source = rows.source[start, : rows.length[start]]
            text = [*prompt, *output[:start], *drafted[source[:-1]].tolist()]
            with torch.inference_mode():
                passed = pair.draft.base_model(torch.tensor([text])).last_hidden_state[0]
            yield (
                int(layout.offsets[sequence]) + start,
                source,
                int(rows.n_prefix[start]),
                passed,
            )


def compare(console: Console, trace: str, heads: list[str]) -> None:
    """AUC, log loss and calibration on the test prompts, and their differences to the first head.

    Below each head the plain margin of the same tokens, fitted to the training prompts; its
    differences are those to that head. Intervals of 95% over prompts (percentiles of 1,000
    resamples, the same for all rows). A head with a lag judges fewer tokens: not those of which the
    recording has no state behind them.
    """
    recorded = load(trace)
    rows = RecordedRows(PathLayout(recorded), states.read(recorded))
    parts = training.split(recorded, training.TrainingSettings())
    n = int(parts.test.sum())
    picks = np.random.default_rng(0).integers(0, n, (1000, n))
    picks = np.concatenate([np.arange(n)[None], picks])
    table = Table("head", "tokens", *_FIGURES, *(f"Δ {name}" for name in _FIGURES))
    first: np.ndarray | None = None
    for file in heads:
        head = files.load(file)
        train = evaluate.judge(head, rows, parts.train)
        fitted = metrics.fit(train.signals[_PLAIN], train.accepted)
        judged = [
            evaluate.judge(head, rows, np.arange(rows.n_sequences) == sequence)
            for sequence in np.flatnonzero(parts.test)
        ]
        own = _drawn(_sums((one.accepted, one.score) for one in judged), picks)
        margin = _sums((one.accepted, fitted(one.signals[_PLAIN])) for one in judged)
        first = own if first is None else first
        tokens = f"{sum(len(one.accepted) for one in judged):,}"
        table.add_row(Path(file).stem, tokens, *_cells(own, first))
        table.add_row(f"  {_PLAIN}", tokens, *_cells(_drawn(margin, picks), own))
    console.print(table)


_PLAIN = "margin top-1 - top-2"


def _drawn(sums: np.ndarray, picks: np.ndarray) -> np.ndarray:
    return np.array([_figures(sums[some].sum(0)) for some in picks])


def _cells(drawn: np.ndarray, against: np.ndarray) -> list[str]:
    return [_interval(column) for column in (*drawn.T, *(drawn - against).T)]


_FIGURES = ("AUC", "log loss", "ECE")
_BINS = 1000


def _sums(judged: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Of each prompt (n, 4, bins): tokens rejected and accepted, scores, log losses, by score.

    Args:
        judged: of each prompt, whether its tokens were accepted and with what probability.
    """
    rows = []
    for accepted, score in judged:
        p = score.astype(np.float64)
        clipped = p.clip(1e-4, 1 - 1e-4)
        loss = -np.log(np.where(accepted, clipped, 1 - clipped))
        place = np.minimum((p * _BINS).astype(int), _BINS - 1)
        given = (~accepted, accepted, p, loss)
        rows.append([np.bincount(place, weights, _BINS) for weights in given])
    return np.array(rows)


def _figures(sums: np.ndarray) -> tuple[float, float, float]:
    """AUC (ties in a bin counted half), log loss in nats, and ECE in 15 bins of equal width."""
    rejected, accepted, score, loss = sums
    below = np.cumsum(rejected) - rejected / 2
    n = rejected.sum() + accepted.sum()
    auc = (accepted * below).sum() / max(1.0, accepted.sum() * rejected.sum())
    wide = np.arange(_BINS) * 15 // _BINS
    gap = np.bincount(wide, score - accepted)
    return float(auc), float(loss.sum() / n), float(abs(gap).sum() / n)


def _interval(values: np.ndarray) -> str:
    """The first value, and the middle 95% of the others."""
    low, high = np.percentile(values[1:], [2.5, 97.5])
    return f"{values[0]:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--compare", nargs="+", metavar="FILE")
    args = parser.parse_args()
    console = Console(width=160)
    if args.speed:
        speed(console, args.threads)
    if args.live:
        live(console, args.prompts)
    if args.compare:
        compare(console, args.compare[0], args.compare[1:])
    if not (args.speed or args.live or args.compare):
        known(console)


if __name__ == "__main__":
    main()
