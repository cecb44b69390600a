"""The recommendation: one sentence, a table, what the answer depends on, what is not known."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from analysis.advise.candidates import NONE, Setting
from analysis.advise.load import LoadAdvice
from analysis.advise.price import FAR, BreakEven, Piece, today
from analysis.stats import Estimate
from simkit.simulator.display import TextTable
from simkit.statistics.enough import FOR_VERDICT
from simkit.surface import Framed
from traces.messages import how_many
from traces.trace import OWN

if TYPE_CHECKING:
    import polars as pl

CLOSE = 0.01  # what is slower by less is as good
SHOWN = 8  # rows of the table for people


@dataclass(frozen=True)
class Row:
    """A rule on a drafter.

    Attributes:
        setting: the fastest of its family on all prompts.
        speedup: over the target alone, on prompts that had no part in its choice.
        against: the advised way's seconds under this one's: above 1 the advised way is faster.
    """

    setting: Setting
    speedup: Estimate
    against: Estimate


@dataclass(frozen=True, eq=False)
class Advice(Framed):
    """Which drafter and which rule, what they gain, and what the answer depends on.

    Attributes:
        trace: its name.
        own: its own drafter in words.
        times: where the seconds are from, in words.
        setting: what is advised for a request alone.
        speedup: of following the advice, over the target alone, on prompts that had no part in it.
        regret: by what share of its time some other setting may be faster on other prompts: not
            more in 97.5% of resamples; NaN for one prompt.
        rows: the advised rule, then the others by tuned speedup.
        default: the engine's own default, and the advised setting's gain over it; or why there is
            none, a sentence; empty where no engine was named.
        pieces: the fastest setting by the price of a draft pass.
        cost_ratio: c of the advised drafter; None where its drafts take no time.
        alike: drafters that one price of their passes may put in the wrong order; see `alike`.
        even: how many tokens a step has to emit; None where nothing is drafted.
        apart: the advised setting's speedup where no output repeats itself; None where few do.
        tasks: the advised setting's speedup on each.
        load: what serves best under load, or why that is not known.
        engine: its name; empty: none.
        config: the setting as the engine's configuration.
        notes: what a reader of the numbers should know, one line each.
        gone: what was not tried, and why.
    """

    trace: str
    own: str
    times: str
    setting: Setting
    speedup: Estimate
    regret: float
    rows: tuple[Row, ...]
    default: tuple[str, Estimate] | str
    pieces: tuple[Piece, ...]
    cost_ratio: float | None
    alike: tuple[str, ...]
    even: BreakEven | None
    apart: Estimate | None
    tasks: dict[str, Estimate]
    load: LoadAdvice | str
    engine: str = ""
    config: str = ""
    notes: tuple[str, ...] = ()
    gone: tuple[str, ...] = field(default=())

    @property
    def sure(self) -> bool:
        """Whether no other setting can be told to be faster by more than 1%, or drafting at all."""
        return not self.doubts

    @property
    def doubts(self) -> list[str]:
        """Why prompts or cost do not tell for sure, a clause each."""
        found = []
        if self.speedup.n_prompts < FOR_VERDICT:
            found.append(f"{how_many(self.speedup.n_prompts, 'prompt')} are too few to choose by")
        elif not self.regret <= CLOSE:
            found.append(
                f"on other prompts like these another setting may be {self.regret:.1%} faster"
            )
        if self.setting.family != NONE and (self.speedup.lo or 2) <= 1:
            found.append("whether drafts gain anything is not clear")
        if self.alike:
            some = ", ".join(self.alike)
            found.append(f"the cost has one price for the draft passes of {some} (see --drafter)")
        return found

    @property
    def answer(self) -> str:
        """The advice in a sentence or two."""
        if self.setting.family == NONE:
            said = (
                "Do not draft: no drafter and no rule is faster than the target alone"
                f" ({self.times})"
            )
        else:
            whose = self.setting.drafter
            drafter = self.own if whose == OWN else whose
            said = (
                f"Draft with {drafter} and stop by {self.setting.policy}:"
                f" {self.speedup.text()} times the speed of the target alone, on prompts that had"
                " no part in the choice"
            )
        doubts = "; ".join(self.doubts)
        return f"{said}. This is not settled: {doubts}." if doubts else f"{said}."

    def sentences(self) -> list[str]:
        """What the answer depends on, a sentence each."""
        some = self._alike(), self._default(), self._price(), self._even(), self._tasks()
        return [*(line for line in (*some, self._apart()) if line), *self._load()]

    def _alike(self) -> str:
        """Which rules are not measurably slower, fixed lengths first."""
        alike = [
            one.setting
            for one in self.rows
            if one.setting[:2] != self.setting[:2]
            and one.against.lo is not None
            and one.against.lo <= 1 <= (one.against.hi or 0)
        ]
        if not alike:
            return ""
        alike.sort(key=lambda one: one.family != "fixed")
        some = ", ".join(one.words for one in alike[:3])
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        return f"These prompts show no difference to {some}{more}."

    def _default(self) -> str:
        if isinstance(self.default, str):
            return self.default
        name, gain = self.default
        return f"Over {self.engine}'s default, {name}: {gain.text()} times its speed."

    def _price(self) -> str:
        """Where another drafter or rule takes over as drafting becomes dearer or cheaper."""
        k = today(self.pieces)
        mine, said = self.pieces[k], []
        if mine.high <= FAR:
            said.append(
                f"above {self._priced(mine.high)}, {self.pieces[k + 1].setting.words} is faster"
            )
        if mine.low >= 1 / FAR:
            said.append(
                f"below {self._priced(mine.low)}, {self.pieces[k - 1].setting.words} is faster"
            )
        if not said:
            free = self.cost_ratio is None
            whose = "the other drafters' passes take" if free else "draft passes take"
            return f"It stays the fastest if {whose} {FAR} times more or less time."
        now = "" if self.cost_ratio is None else f" (c = {self.cost_ratio:.3g} now)"
        return f"The price of a draft pass decides{now}: {'; '.join(said)}."

    def _priced(self, price: float) -> str:
        """So many times what a draft pass takes now, and the cost ratio then."""
        if self.cost_ratio is None:
            return f"{price:.3g} times its present price"
        return f"{price:.3g} times its present price (c = {self.cost_ratio / price:.3g})"

    def _even(self) -> str:
        if self.even is None:
            return ""
        return (
            f"Tokens a step: {self.even.now:.2f}. Below {self.even.least:.2f}, at the same time a"
            " step, the target alone is faster."
        )

    def _tasks(self) -> str:
        """On which tasks it loses, or on which it gains least."""
        known = {name: one for name, one in self.tasks.items() if one.value is not None}
        if len(known) < 2 or self.setting.family == NONE:
            return ""
        loses = [name for name, one in known.items() if (one.value or 1) < 1]
        if loses:
            some = ", ".join(f"{name} {known[name].text()}" for name in loses)
            return f"It loses on {len(loses)} of {how_many(len(known), 'task')}: {some}."
        worst = min(known, key=lambda name: known[name].value or math.inf)
        least = f"least on {worst}, {known[worst].text()}"
        return f"It gains on all {how_many(len(known), 'task')}, {least}."

    def _apart(self) -> str:
        """What it is worth without loops, where many outputs have them."""
        if self.apart is None:
            return ""
        n = self.apart.n_prompts
        return (
            f"On the {n} outputs that do not repeat themselves, this rule is {self.apart.text()}"
            " times as fast as the target alone."
        )

    def _load(self) -> list[str]:
        if isinstance(self.load, str):
            return [self.load]
        whose = "" if self.setting.drafter == OWN else f" on {self.setting.drafter}"
        said = []
        for one in self.load.at:
            best = "no drafts serve" if one.best == "none" else f"{one.best}{whose} serves"
            gain = "" if one.best == "none" else f", {one.gain.text('.2f')} times no drafts"
            flight = how_many(one.requests, "request")
            said.append(f"Simulated with {flight} in flight, {best} the most tokens{gain}.")
        off = self.load.off
        if len(self.load.at) > 1:
            said.append(self._off(off, [one.requests for one in self.load.at]))
        return said

    def _off(self, off: Estimate, loads: list[int]) -> str:
        """From which load on drafts do not pay, or on which side of it all loads are."""
        rule, than = self.setting.policy, "than no drafts"
        if off.value is None:
            slower = "slower" if off.note.startswith("below") else "no slower"
            return f"From {loads[0]} to {loads[-1]} in flight, {rule} is {slower} {than}."
        return f"From a load of {off.text('.0f')} in flight, {rule} is slower {than}."

    def table(self) -> TextTable:
        """The rules by speed, for people."""
        heads = ["drafter", "rule", "tuned speedup", "best rule ÷ this"]
        rows = [
            [one.setting.drafter, one.setting.policy, one.speedup.text(), one.against.text()]
            for one in self.rows[:SHOWN]
        ]
        more = len(self.rows) - SHOWN
        note = (
            "Each rule's arguments were chosen on other prompts; for the sentence above, drafter"
            " and rule were too."
        )
        if self.setting.family != NONE and len(self.rows) > 1:
            note += (
                " The recommended rule, the fastest on all prompts, is the first row. The others"
                " follow by tuned speedup, which may be higher than the first row's."
            )
        note += f" {how_many(more, 'rule')} more, slower." if more > 0 else ""
        return TextTable(f"{self.trace}, {self.times}", heads, rows, note)

    def records(self) -> list[dict[str, Any]]:
        """One record, as plain values; None where there is no number."""
        made = {"answer": self.answer, "sure": self.sure} | asdict(self)
        made["times"] = self.times.removeprefix("times: ")
        made["setting"] = self.setting._asdict()
        made["regret"] = None if math.isnan(self.regret) else self.regret
        made["pieces"] = [
            one.setting._asdict()
            | {"low": one.low, "high": one.high if math.isfinite(one.high) else None}
            for one in self.pieces
        ]
        made["even"] = self.even and self.even._asdict()
        made["rows"] = [
            one.setting._asdict() | {"speedup": asdict(one.speedup), "against": asdict(one.against)}
            for one in self.rows
        ]
        return [made]

    def below(self) -> list[str]:
        """Lines below the table: what the answer depends on, the configuration, notes."""
        notes = [f"note: {line}" for line in (*self.gone, *self.notes)]
        config = [f"{self.engine}:", "", self.config.rstrip(), ""] if self.config else []
        return [*(f"- {line}" for line in self.sentences()), "", *config, *notes]

    def markdown(self) -> str:
        """The same as Markdown."""
        return "\n".join([self.answer, "", self.table().markdown(), *self.below(), ""])

    def __repr__(self) -> str:
        return f"<Advice: {self.answer}>"

    def __str__(self) -> str:
        return "\n".join([self.answer, "", self.table().text(), *self.below()])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.below() if line)
        return f"<p>{escape(self.answer)}</p>{self.table().html()}{lines}"

    @property
    def frame(self) -> pl.DataFrame:
        """The rules by speed."""
        import polars as pl

        rows = [
            one.setting._asdict()
            | {f"speedup{end}": getattr(one.speedup, name) for end, name in _ENDS}
            | {f"against{end}": getattr(one.against, name) for end, name in _ENDS}
            for one in self.rows
        ]
        kinds = {f"{what}{end}": pl.Float64 for what in ("speedup", "against") for end, _ in _ENDS}
        return pl.DataFrame(rows, schema_overrides=kinds)


_ENDS = ("", "value"), ("_lo", "lo"), ("_hi", "hi")
