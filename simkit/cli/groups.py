"""Options that go together: a command takes them as one value, its users see each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Result = TypeVar("Result")


def grouped(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command, called by its options: each field of a parameter that is a dataclass is one.

    Args:
        command: its parameters are options, or dataclasses whose fields are options.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    fields = {name: _parameters(group) for name, group in groups.items()}
    options = [
        option
        for name, parameter in inspect.signature(command).parameters.items()
        for option in fields.get(name, [parameter.replace(annotation=hints[name])])
    ]

    @wraps(command)
    def call(**given: Any) -> Result:
        for name, group in groups.items():
            given[name] = group(**{option.name: given.pop(option.name) for option in fields[name]})
        return command(**given)

    named = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    call.__annotations__ = {option.name: option.annotation for option in options}
    call.__annotations__["return"] = hints["return"]
    call.__signature__ = inspect.Signature(named)  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _parameters(group: Any) -> list[inspect.Parameter]:
    """Those of a dataclass, with their types instead of the names of these."""
    hints = get_type_hints(group, include_extras=True)
    return [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(group).parameters.items()
    ]
