"""The rows of the ablations as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from analysis.claims.verdict import Verdict
from benchmarks.ablations.arms import Ablation
from benchmarks.ablations.pair import by_cost, by_task
from benchmarks.ablations.replays import Row
from traces.trace import Trace

COUNTED = (Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN, Verdict.UNTESTED)
_HEADS = (
    "task",
    "arm",
    "tokens/s",
    "speedup",
    "τ",
    "÷ baseline row",
    "baseline row",
    "paper",
    "verdict",
)


def markdown(
    trace: Trace, costs: Iterable[str], ablations: Sequence[Ablation], rows: Sequence[Row]
) -> Iterator[str]:
    """All lines: the pair, a summary, then a table for each ablation, cost and settings."""
    yield from ("## The pair", "", *_pair(trace, costs))
    yield from ("", "## Do the papers' comparisons hold?", "", *summary(rows))
    for ablation in ablations:
        yield from ("", f"## {ablation.name}: {ablation.title}", "", f"{ablation.source}.")
        mine = [row for row in rows if row.ablation == ablation.name]
        for cost, settings in dict.fromkeys((row.cost, row.settings) for row in mine):
            some = [row for row in mine if (row.cost, row.settings) == (cost, settings)]
            yield from ("", f"**{settings}, cost {cost}**", "", *_table(some))


def _pair(trace: Trace, costs: Iterable[str]) -> Iterator[str]:
    heads = ("τ of oracle", "steps with 0", "with ≤ 2", "PACER stops after one block", "in loops")
    yield from _lines(
        ("task", *heads),
        [
            (name, f"{tau:.2f}", *(f"{share:.0%}" for share in shares))
            for name, tau, *shares in by_task(trace)
        ],
    )
    yield ""
    yield from _lines(
        ("cost", "T_target(1) ÷ T_draft", "T_head ÷ T_draft"),
        [(cost, f"{c:.2f}", f"{head:.2f}") for cost, c, head in by_cost(trace, costs)],
    )


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The verdicts on the paper's comparisons, counted, and which row is fastest."""
    yield from _lines(
        (
            "ablation",
            "settings",
            "cost",
            "task",
            *COUNTED,
            "fastest row",
        ),
        [
            (*key, *_counts(some), max(some, key=lambda row: row.speedup).arm)
            for key, some in _grouped(rows).items()
        ],
    )


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row.ablation, row.settings, row.cost, row.task), []).append(row)
    return grouped


def _counts(rows: Sequence[Row]) -> tuple[str, ...]:
    found = Counter(row.verdict for row in rows)
    return tuple(str(found[v]) for v in COUNTED)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    tuned = rows[0].folds is not None
    heads = (*_HEADS, "chosen most often") if tuned else _HEADS
    yield from _lines(heads, [(*_cells(row), *([row.setting] if tuned else [])) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.task,
        row.arm,
        f"{row.tokens_per_s:.2f}",
        _interval(row.speedup, row.speedup_lo, row.speedup_hi),
        f"{row.tau:.2f} {_arrow(row)}".strip(),
        _interval(row.ratio, row.ratio_lo, row.ratio_hi),
        row.against or "",
        _printed(row),
        row.verdict or "",
    )


def _arrow(row: Row) -> str:
    """Whether a step yields more tokens than one of the baseline row, outside the interval."""
    if row.steps_ratio_lo is None or row.steps_ratio_hi is None:
        return ""
    return "↑" if row.steps_ratio_lo > 1 else "↓" if row.steps_ratio_hi < 1 else "≈"


def _printed(row: Row) -> str:
    numbers = (
        (row.printed_tokens_per_s, "{:.2f}"),
        (row.printed_speedup, "{:g}×"),
        (row.printed_tau, "τ {:.2f}"),
    )
    return ", ".join(text.format(number) for number, text in numbers if number is not None)


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return "" if value is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
