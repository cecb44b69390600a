"""What comes out of a comparison: tables for people, frames and plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from analysis.compare.best import Best, BestChoice
from analysis.compare.measures import Measured
from analysis.compare.ranks import Order, Rank, Ranking
from analysis.stats import Estimate
from simkit.simulator.display import TextTable, noted
from simkit.surface import Framed
from traces.messages import how_many

if TYPE_CHECKING:
    import polars as pl

SHOWN = 10  # pairs of policies in a table for people; records have all
ALONE = " †"  # a value without an interval
ALIKE = "same"

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pair:
    """Two sides, the second held against the first.

    Attributes:
        names: of both.
        pairing: whether prompts are paired, in words.
        measures: statistics of acceptance.
        rankings: of policies with the arguments given, and of tuned ones; those that there are.
        bests: best settings of families, of fixed lengths first; none without times.
        notes: what a reader of the numbers should know, one line each.
        skipped: why policies are left out, a line each.
        confidence: of the intervals.
    """

    names: tuple[str, str]
    pairing: str
    measures: tuple[Measured, ...]
    rankings: tuple[Ranking, ...]
    bests: tuple[Best, ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...]
    confidence: float

    def tables(self) -> list[TextTable]:
        """For people."""
        made = [self._measures()]
        for one in self.rankings:
            made += [self._ranking(one), *self._orders(one)]
        return [*made, *([self._bests()] if self.bests else [])]

    def answer(self) -> str:
        """The outcome in one sentence, see `analysis.compare.answer`."""
        from analysis.compare.answer import answer

        return answer(self)

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "first": self.names[0],
            "second": self.names[1],
            "pairing": self.pairing,
            "confidence": self.confidence,
            "statistics": [_plain(one) for one in self.measures],
            "rankings": [_plain(one) for one in self.rankings],
            "best": [_plain(one) for one in self.bests],
            "notes": list(self.notes),
            "skipped": list(self.skipped),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of the frame, see `Compared.frame`."""
        for one in self.measures:
            yield self._row("statistic", one.name, one.first, one.second, one.difference)
        for some in self.rankings:
            end = ", tuned" if some.tuned else ""
            for one in some.rows:
                both = self._row(f"speedup{end}", one.name, one.first, one.second, one.ratio)
                yield both | dict(zip(_SETTINGS, one.settings, strict=True))
            for one in some.rows:
                yield self._row(f"rank{end}", one.name, *map(_of_rank, one.ranks))
            for one in some.orders:
                same = Estimate(one.same, None, None, 0)
                both = self._row(f"same order{end}", f"{one.one}, {one.other}", between=same)
                yield both | dict(zip(_SETTINGS, one.faster, strict=True))
            yield self._row(f"Kendall's tau{end}", "", between=some.tau)
        for one in self.bests:
            both = self._row("lost with the other's best", one.family, *one.lost)
            yield both | dict(zip(_SETTINGS, (c.setting for c in one.choices), strict=True))

    def _row(
        self,
        part: str,
        name: str,
        first: Estimate | None = None,
        second: Estimate | None = None,
        between: Estimate | None = None,
    ) -> dict[str, Any]:
        row: dict[str, Any] = dict(zip(("first", "second"), self.names, strict=True))
        row |= {"part": part, "name": name} | dict.fromkeys(_SETTINGS)
        for where, one in (("first", first), ("second", second), ("between", between)):
            for end in ("value", "lo", "hi"):
                row[f"{where}_{end}"] = None if one is None else getattr(one, end)
        notes = [one.note for one in (between, second, first) if one is not None and one.note]
        return row | {"note": notes[0] if notes else ""}

    @property
    def _level(self) -> str:
        return f"{100 * self.confidence:.4g}%"

    def _measures(self) -> TextTable:
        rows = []
        for one in self.measures:
            cells = [found.text(one.form, ALONE) for found in (one.first, one.second)]
            difference = one.difference.text(f"+{one.form}", ALONE)
            rows.append([one.name, *cells, difference, _way(one)])
        note = (
            f"Difference: {self.names[1]} minus {self.names[0]}. Intervals are over prompts, at"
            f" {self._level}, each for its row alone; †: none. ≈: not distinguishable from 0."
        )
        heads = ["statistic", *self.names, "difference", ""]
        return TextTable("Acceptance", heads, rows, note)

    def _ranking(self, found: Ranking) -> TextTable:
        rows = []
        for one in found.rows:
            speeds = [each.text(".3f", ALONE) for each in (one.first, one.second, one.ratio)]
            mine = [one.name, *speeds, *map(_place, one.ranks)]
            rows.append([*mine, *one.settings] if found.tuned else mine)
        heads = ["policy", *self.names, f"{self.names[1]} ÷ {self.names[0]}"]
        heads += [f"rank on {name}" for name in self.names]
        heads += [f"best on {name}" for name in self.names] if found.tuned else []
        title = "Policies, each tuned on other prompts" if found.tuned else "Policies"
        alike = sum(one.alike for one in found.orders)
        note = f"Speedups over the target alone; a rank's range: {self._level} of resamples."
        if found.orders:
            note += (
                f" Both traces order {alike} of {how_many(len(found.orders), 'pair')} of policies"
                f" alike; Kendall's τ {found.tau.text('.2f', ALONE)}."
            )
        return TextTable(title, heads, rows, note)

    def _orders(self, found: Ranking) -> list[TextTable]:
        """Pairs of policies that the sides order differently, the surest first."""
        apart = sorted((o for o in found.orders if not o.alike), key=lambda o: o.same or 0.0)
        if not apart:
            return []
        rows = [
            [f"{one.one}, {one.other}", *(who or "neither" for who in one.faster), _share(one)]
            for one in apart[:SHOWN]
        ]
        more = len(apart) - SHOWN
        heads = ["policies", *(f"faster on {name}" for name in self.names), "same order"]
        title = "Ordered differently" + (", tuned" if found.tuned else "")
        note = "Same order: share of resamples of prompts in which both traces order them alike."
        return [TextTable(title, heads, rows, note + (f" {more} more." if more > 0 else ""))]

    def _bests(self) -> TextTable:
        rows = []
        for one in self.bests:
            chosen = [_choice(choice, self._level) for choice in one.choices]
            lost = (found.text("+.1%", ALONE) for found in reversed(one.lost))
            rows.append([one.family, *chosen, *lost])
        one, other = self.names
        heads = ["family", f"best on {one}", f"best on {other}"]
        heads += [f"lost on {other} with {one}'s", f"lost on {one} with {other}'s"]
        note = (
            "In: share of resamples of prompts that choose it, or one of a range. Lost: extra time"
            " with the other's best, relative to the time with its own; both are chosen without the"
            " prompt that judges them, so below 0 the other's is better."
        )
        return TextTable("Best settings", heads, rows, note)


@dataclass(frozen=True)
class Compared(Framed):
    """Traces, or drafters of one, held against each other; shows itself as tables.

    Attributes:
        sides: each by name, with what it is.
        pairs: the first side against each other one.
    """

    sides: tuple[tuple[str, Facts], ...]
    pairs: tuple[Pair, ...]

    def about(self) -> TextTable:
        """What each side is; what is that of the first is not said again."""
        facts = [dict(some) for _, some in self.sides]
        names = list(dict.fromkeys(name for some in facts for name in some))
        rows = []
        for name in names:
            first, *others = (some.get(name, "–") for some in facts)
            rows.append([name, first, *(ALIKE if one == first else one for one in others)])
        return TextTable("What is compared", ["", *(name for name, _ in self.sides)], rows)

    def records(self) -> dict[str, Any]:
        """As plain values: `sides` with their facts, and `pairs`."""
        sides = [{"name": name, **dict(facts)} for name, facts in self.sides]
        return {"sides": sides, "pairs": [pair.record() for pair in self.pairs]}

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All numbers, a row each.

        `part` says what it is: statistic, speedup, rank, same order, Kendall's tau, lost with the
        other's best; `name` of what; `first_value`, `second_value` and `between_value`, each with
        `_lo` and `_hi`, are those of both sides, and the difference or ratio.
        """
        import polars as pl

        rows = [row for pair in self.pairs for row in pair.rows()]
        kinds = dict.fromkeys(_SETTINGS, pl.String)
        ends = ("value", "lo", "hi")
        numbers = [f"{w}_{end}" for w in ("first", "second", "between") for end in ends]
        return pl.DataFrame(rows, schema_overrides=kinds | dict.fromkeys(numbers, pl.Float64))

    def sections(self) -> Iterator[tuple[str, list[TextTable], tuple[str, ...]]]:
        """For people: a line, tables and notes, of all sides and of each pair."""
        yield "", [self.about()], ()
        for pair in self.pairs:
            one, other = pair.names
            yield (
                f"{other} against {one}: {pair.pairing}.",
                pair.tables(),
                (*pair.notes, *pair.skipped),
            )

    def markdown(self) -> str:
        """All tables."""
        parts = []
        for title, tables, notes in self.sections():
            parts += [f"{title}\n"] if title else []
            parts += [table.markdown() for table in tables]
            parts += [f"- {note}" for note in notes]
            parts += [""] if notes else []
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Compared: {', '.join(name for name, _ in self.sides)}>"

    def __str__(self) -> str:
        parts = []
        for title, tables, notes in self.sections():
            parts += [title, ""] if title else []
            parts += [table.text() for table in tables]
            parts += [f"note: {note}" for note in notes]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        made = []
        for title, tables, notes in self.sections():
            made += [f"<p>{escape(title)}</p>"] if title else []
            made += [*(table.html() for table in tables), noted(notes)]
        return "".join(made)


_SETTINGS = ("first_setting", "second_setting")


def _plain(value: Any) -> Any:
    """As plain values, by name; without what is for people alone."""
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name != "form"]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}  # type: ignore
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _choice(choice: BestChoice, level: str) -> str:
    said = choice.setting
    if choice.often is not None:
        said += f" in {choice.often:.0%}"
    if choice.among is not None and choice.among != (choice.setting, choice.setting):
        said += f", {choice.among[0]} to {choice.among[1]} in {level}"
    return said


def _of_rank(rank: Rank) -> Estimate:
    return Estimate(rank.value, rank.lo, rank.hi, 0)


def _place(rank: Rank) -> str:
    return f"{rank.value}" if rank.lo is None else f"{rank.value} [{rank.lo}, {rank.hi}]"


def _share(order: Order) -> str:
    return "–" if order.same is None else f"{order.same:.0%}"


def _way(one: Measured) -> str:
    """How a difference reads."""
    found = one.difference
    if found.value is None:
        return "–"
    if found.value == 0 and found.lo is None:
        return "= equal"
    if found.lo is None or found.hi is None:
        return ""
    if found.lo > 0 or found.hi < 0:
        return "▲ higher" if found.value > 0 else "▼ lower"
    return "≈"
