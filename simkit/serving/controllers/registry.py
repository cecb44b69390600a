"""Controllers by name, and by spec."""

from __future__ import annotations

from typing import TypeVar

from simkit.errors import PolicyError
from simkit.serving.controllers.base import Controller
from traces.registry import Registry, of_class

C = TypeVar("C", bound=type[Controller])


CONTROLLERS: Registry[type[Controller]] = Registry(
    "controller", PolicyError, "simkit.controllers", of_class(Controller)
)
"""Controller classes by the name of their specs."""


def register(cls: C) -> C:
    """Make a controller known by its `name` (decorator).

    Raises:
        PolicyError: another controller has that name.
    """
    CONTROLLERS.add(cls.name, cls)
    return cls
