"""A study's settings in one file, as the defaults of every command that has such options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from traces import reading
from traces.errors import UserError

_MOST_BYTES = 2**20


class StudyError(UserError):
    """A study's file is wrong."""


def defaults(group: Any, ctx: typer.Context, file: Path, command: str) -> dict[str, Any]:
    """What a study's file says of a command's options, by the names of its parameters.

    Keys at the top are of every command that has such an option or argument; those of a table, of
    the command with its name alone, which come first.

    Args:
        group: of all commands.
        ctx: of the group.
        file: TOML.
        command: that is called.

    Raises:
        StudyError: the file cannot be read, or names what no command has, or gives an option
            something that it does not take.
    """
    found = reading.parse_toml(reading.read_text(file, _MOST_BYTES, StudyError), file, StudyError)
    commands = group.list_commands(ctx)
    tables = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    for key in tables:
        if key not in commands:
            raise StudyError(f"{file}: no command {key!r}{_nearest(key, commands)}")
    own = tables.get(command, {})
    known = _parameters(group.get_command(ctx, command))
    given = {}
    shared = {key: value for key, value in found.items() if key not in tables}
    for key, value in {**shared, **own}.items():
        if key in known:
            given[known[key].name] = _fitting(file, key, value, known[key])
        elif key in own:
            raise StudyError(f"{file}: {command} has no option {key!r}{_nearest(key, known)}")
        else:
            _check_known(group, ctx, file, key)
    return given


def _parameters(command: Any) -> dict[str, Any]:
    """A command's options by their long names, without the dashes, and its arguments."""
    known = {}
    for one in command.params:
        long = [name.removeprefix("--") for name in one.opts if name.startswith("--")]
        for name in long or [one.name]:
            known[name] = one
    return known


def _check_known(group: Any, ctx: typer.Context, file: Path, key: str) -> None:
    names: set[str] = set()
    for command in group.list_commands(ctx):
        names |= _parameters(group.get_command(ctx, command)).keys()
        if key in names:
            return
    raise StudyError(f"{file}: no command has an option {key!r}{_nearest(key, names)}")


def _fitting(file: Path, key: str, value: Any, parameter: Any) -> Any:
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1
    values = value if isinstance(value, list) else [value]
    if not several and values is value:
        raise StudyError(f"{file}: {key} takes one value, not a list")
    if any(isinstance(one, list | Mapping) for one in values):
        raise StudyError(f"{file}: {key} takes texts and numbers, not lists or tables in a list")
    return values if several else value


def _nearest(key: str, names: Any) -> str:
    from simkit.cli.options import RENAMED
    from traces.registry import suggest

    now = RENAMED.get(f"--{key}", "").removeprefix("--")
    if now in names:
        return f" (did you mean {now}?)"
    return f" ({suggest(key, names)})"
