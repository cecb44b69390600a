"""One of the two policies of the page: its widgets, and what it is set to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn

from analysis.explore.arguments import Argument
from analysis.explore.model import ExploreModel
from simkit.policies import Policy


class ExploreSide:
    """A choice of a policy, with a widget for each argument.

    Attributes:
        name: A or B.
        view: the widgets.
    """

    def __init__(
        self, name: str, model: ExploreModel, first: str, moved: Callable[[ExploreSide], None]
    ) -> None:
        self.name = name
        self._model = model
        self._moved = moved
        self._widgets: dict[str, Any] = {}
        self.choice = pn.widgets.Select(
            label=f"policy {name}",
            value=first,
            options=model.policies,
            sizing_mode="stretch_width",
        )
        self._arguments = pn.Column(sizing_mode="stretch_width")
        self.view = pn.Column(self.choice, self._arguments, sizing_mode="stretch_width")
        self.choice.param.watch(self._chosen, "value")
        self._fill()

    def policy(self) -> Policy:
        """As the widgets are; raises PolicyError where they do not go together."""
        values = {name: widget.value for name, widget in self._widgets.items()}
        return self._model.policy(self.choice.value, values)

    def widget(self, argument: str) -> Any:
        """That of an argument."""
        return self._widgets[argument]

    def _chosen(self, event: Any) -> None:
        self._fill()
        self._moved(self)

    def _fill(self) -> None:
        found = self._model.arguments(self.choice.value)
        self._widgets = {argument.name: _widget(argument) for argument in found}
        for widget in self._widgets.values():
            widget.param.watch(lambda event: self._moved(self), "value")
        self._arguments.objects = list(self._widgets.values())


def _widget(argument: Argument) -> Any:
    name, values, value = argument.name, argument.values, argument.default
    if isinstance(value, bool):
        return pn.widgets.Checkbox(label=name, value=value)
    how: dict[str, Any] = {"label": name, "value": value, "sizing_mode": "stretch_width"}
    if any(isinstance(one, str) for one in values):
        return pn.widgets.Select(options=list(values), **how)
    options = {"by default" if one is None else f"{one:g}": one for one in values}
    return at_once(pn.widgets.DiscreteSlider(options=options, **how))


def at_once(slider: Any) -> Any:
    """The slider, answered at once: Panel waits 50 ms for more changes, a redraw takes 10."""
    for one in (slider, *getattr(slider, "_composite", ())):
        one._debounce = 1  # ms
    return slider
