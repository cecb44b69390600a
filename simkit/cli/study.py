"""A study's settings in one file, as the defaults of every command that has such options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from simkit.cli.tables import tell
from traces import reading
from traces.errors import UserError

_MOST_BYTES = 2**20


class StudyError(UserError):
    """A study's file is wrong."""


def defaults(group: Any, ctx: typer.Context, file: Path, command: str) -> dict[str, Any]:
    """What a study's file says of a command's options, by the names of its parameters.

    Keys at the top are of every command that has such an option or argument, and a note has those
    that this one does not have; keys of a table are of the command with its name alone, and come
    first.

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
    known = _parameters(group.get_command(ctx, command))
    given, left = {}, []
    for key, value in found.items():
        if key in known and key not in tables:
            given[known[key].name] = _fitting(file, key, value, known[key])
        elif key not in tables:
            _check_known(group, ctx, file, key)
            left.append(key)
    if left:
        tell([f"{file}: {command} does not take {', '.join(left)}"])
    of_tables = {key: _of_table(group, ctx, file, key, tables[key]) for key in tables}
    return given | of_tables.get(command, {})


def _of_table(
    group: Any, ctx: typer.Context, file: Path, command: str, table: Mapping[str, Any]
) -> dict[str, Any]:
    """A command's own settings; those of other commands than the one called are checked alike."""
    known = _parameters(group.get_command(ctx, command))
    for key in table:
        if key not in known:
            raise StudyError(f"{file}: {command} has no option {key!r}{_nearest(key, known)}")
    return {known[key].name: _fitting(file, key, table[key], known[key]) for key in table}


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
