"""The explorer's page: widgets on the left, the frontier, two texts with their signals."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import panel as pn
from bokeh.models import Range1d

from analysis.explore import text as texts
from analysis.explore.model import OVERHEAD, ExploreModel, Point, point
from analysis.explore.plots import LOOKS, Frontier, Signals
from analysis.explore.side import ExploreSide, at_once
from simkit.simulator.beyond import together
from simkit.simulator.display import noted
from simkit.simulator.run import Run
from traces.errors import UserError

FIRST = ("fixed", "svip", "confidence", "rate_optimal", "oracle")  # of these A and B begin
OWN, TWO = "its own times", "c and overhead"
HEADS = ("", "policy", "speedup", "tokens/step", "drafted", "accepted", "steps")
NOT_SHOWN = (
    "Speedups are of all prompts, without intervals: simkit replay gives those. The first use of"
    " a policy takes a second or two: it is compiled."
)
TREES = (
    " Of a policy that drafts trees the text does not show which nodes were thrown away: ×n"
    " says how many."
)
UNKNOWN = " The trace does not hold the ids of rejected tokens: ×n says how many there were."


class Page:
    """What a reader sees, and what happens when a widget moves.

    Attributes:
        model: replays.
        sides: A and B.
        view: what Panel shows.
    """

    def __init__(self, model: ExploreModel) -> None:
        self.model = model
        self.frontier = Frontier()
        self.sides = {
            name: ExploreSide(name, model, first, self._moved)
            for name, first in zip("AB", _beginning(model), strict=True)
        }
        self.positions = Range1d(start=0, end=1)
        most = model.drafts.greatest("entropy")
        self.signals = {name: Signals(name, self.positions, most) for name in self.sides}
        how: dict[str, Any] = {"sizing_mode": "stretch_width", "stylesheets": [texts.STYLE]}
        self.texts = {name: pn.pane.HTML("", **how) for name in self.sides}
        self.prompt = pn.pane.HTML("", **how)
        self.table = pn.pane.HTML("", sizing_mode="stretch_width")
        self.error = pn.pane.Alert("", alert_type="warning", visible=False)
        self.remarks = pn.pane.HTML("", sizing_mode="stretch_width")
        self._runs: dict[str, Run] = {}
        self._points: dict[str, Point] = {}
        self._errors: dict[str, str] = {}
        self._there = False
        self._costs()
        self._choosers()
        self._priced()
        self.view = self._laid_out()
        pn.state.onload(self._arrived)

    @pn.io.hold()
    def _arrived(self) -> None:
        """The browser has the page, or there is none: texts come as they do behind a slider.

        So the first of a slider's moves finds compiled what it runs.
        """
        self._there = True
        self._show_prompt()

    def _costs(self) -> None:
        model = self.model
        kinds = [OWN, TWO] if model.own else [TWO]
        how: dict[str, Any] = {"sizing_mode": "stretch_width"}
        ratio = (
            min(50.0, max(1.0, round(model.ratio * 2) / 2)) if math.isfinite(model.ratio) else 50
        )
        self.cost = pn.widgets.RadioButtonGroup(label="cost", options=kinds, value=kinds[0])
        self.ratio = pn.widgets.FloatSlider(
            label="c: target pass ÷ draft pass", start=1, end=50, step=0.5, value=ratio, **how
        )
        self.overhead = pn.widgets.FloatSlider(
            label="overhead of a step, target passes",
            start=0,
            end=1,
            step=0.01,
            value=OVERHEAD,
            **how,
        )
        for widget in (self.cost, at_once(self.ratio), at_once(self.overhead)):
            widget.param.watch(lambda event: self._priced(), "value")

    def _choosers(self) -> None:
        prompts = self.model.prompts()
        task = next(iter(prompts))
        options = {name: {label: k for k, label in some} for name, some in prompts.items()}
        self.task = pn.widgets.Select(label="task", options=list(options), value=task, width=180)
        self.chosen = pn.widgets.Select(label="prompt", options=options[task], width=240)

        def other_task(event: Any) -> None:
            self.chosen.param.update(
                options=options[event.new], value=next(iter(options[event.new].values()))
            )

        self.task.param.watch(other_task, "value")
        self.chosen.param.watch(lambda event: self._show_prompt(), "value")

    @pn.io.hold()
    def _priced(self) -> None:
        """Another cost: all points move; a text does only if its policy asks for the cost."""
        two = self.cost.value == TWO
        self.ratio.disabled = self.overhead.disabled = not two
        if two:
            self.model.price(self.ratio.value, self.overhead.value)
        else:
            self.model.price_own()
        self._line = self.model.line()
        self.frontier.draw_line(self._line)
        for side in self.sides.values():
            self._replay(side, keep=False)
        self._show_table()

    @pn.io.hold()
    def _moved(self, side: ExploreSide) -> None:
        self._replay(side, keep=True)
        self._show_table()

    def _replay(self, side: ExploreSide, keep: bool) -> None:
        name = side.name
        try:
            policy = side.policy()
            found = self.model.replay(policy)
        except UserError as error:
            self._errors[name] = f"{name}: {error}"
            return
        self._errors.pop(name, None)
        before = self._runs.get(name)
        self._runs[name] = found
        self._points[name] = point(found)
        self.frontier.draw(name, self._points[name], keep)
        if before is None or before.bound != found.bound:
            self._show_text(name)

    def _show_prompt(self) -> None:
        index = self.chosen.value
        n_output = int(self.model.study.layout.n_output[index])
        self.positions.start, self.positions.end = 0.5, n_output + 0.5
        words = escape(self.model.prompt(index)) or "(the trace does not hold its text)"
        self.prompt.object = (
            f"<details><summary>The prompt</summary><pre>{words}</pre></details>{texts.legend()}"
        )
        for name in self._runs:
            self._show_text(name)

    def _show_text(self, name: str) -> None:
        if not self._there:
            return
        found = self.model.text(self._runs[name], self.chosen.value)
        self.texts[name].object = texts.html(found, self.model.spell)
        self.signals[name].draw(found, self.model.spell)

    def _show_table(self) -> None:
        rows = "".join(_row(name, one) for name, one in sorted(self._points.items()))
        heads = "".join(f'<th style="padding-left:14px">{head}</th>' for head in HEADS)
        self.table.object = f"<table><tr>{heads}</tr>{rows}</table>"
        beyond = [one for at in (*self._line, *self._points.values()) for one in at.beyond]
        self.remarks.object = noted([*self.model.remarks, *together(beyond)])
        said = " · ".join(self._errors[name] for name in sorted(self._errors))
        self.error.param.update(object=escape(said), visible=bool(said))

    def _laid_out(self) -> Any:
        model = self.model
        wide: dict[str, Any] = {"sizing_mode": "stretch_width"}
        notes = NOT_SHOWN
        notes += TREES if model.study.layout.has_trees else ""
        notes += "" if model.drafts.knows_tokens or model.study.layout.has_trees else UNKNOWN
        left = pn.Column(
            self.cost,
            self.ratio,
            self.overhead,
            *(side.view for side in self.sides.values()),
            width=300,
        )
        middle = pn.Column(
            self.frontier.figure,
            self.table,
            self.error,
            self.remarks,
            pn.pane.HTML(notes),
            **wide,
        )
        columns = [
            pn.Column(
                f"### {name}", self.texts[name], *self.signals[name].figures, min_width=380, **wide
            )
            for name in self.sides
        ]
        return pn.Column(
            f"## {escape(title(model))}",
            pn.Row(left, middle, **wide),
            pn.Row(self.task, self.chosen),
            self.prompt,
            pn.Row(*columns, **wide),
            **wide,
        )


def title(model: ExploreModel) -> str:
    """What the page is about."""
    trace = model.study.trace
    recording = trace.recording or trace
    name = recording.path.name if recording.path else "a trace in memory"
    drafter = f", drafter {trace.path.name}" if trace.recording and trace.path else ""
    return f"simkit explore: {name}{drafter}"


def _row(name: str, one: Point) -> str:
    color, marker = LOOKS[name]
    sign = {"circle": "●", "triangle": "▲"}[marker]
    speedup = "–" if one.speedup is None else f"{one.speedup:.3f}"
    share = f" ({one.accepted / one.drafted:.1%})" if one.drafted else ""
    cells = (speedup, f"{one.tokens_per_step:.3f}", f"{one.drafted:,}", f"{one.accepted:,}{share}")
    numbers = "".join(
        f'<td style="text-align:right;padding-left:14px">{cell}</td>'
        for cell in (*cells, f"{one.steps:,}")
    )
    return (
        f'<tr><td style="color:{color}">{sign} {name}</td><td>{escape(one.policy)}</td>{numbers}'
        "</tr>"
    )


def _beginning(model: ExploreModel) -> tuple[str, str]:
    there = [name for name in FIRST if name in model.policies] or model.policies
    return there[0], there[min(1, len(there) - 1)]
