"""Lists of what there is by name: policies, drafters, costs, those of other packages too."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.text import Text

from traces import specs
from traces.messages import printable

ListFormat = Literal["table", "json", "markdown"]


class ListEntry(NamedTuple):
    """One thing that has a name.

    Attributes:
        name: of its specs.
        arguments: by name, as a spec writes their defaults, None where a value must be given; None
            for what has no spec.
        what: one line.
        source: whose it is, one line; empty if that is not said.
        about: all that is said of it.
        place: the module and the class.
    """

    name: str
    arguments: dict[str, str | None] | None
    what: str
    source: str
    about: str
    place: str

    @property
    def spec(self) -> str:
        """The name with all arguments and their defaults; what has numbers of its own, by name."""
        if self.arguments is None or not self.name.isidentifier():
            return self.name
        given = [
            name if value is None else f"{name}={value}" for name, value in self.arguments.items()
        ]
        return f"{self.name}({', '.join(given)})"


class Kind(NamedTuple):
    """A kind of thing that has a name.

    Attributes:
        noun: for one of them.
        what: one line about the kind.
        names: gives all names, those of other packages too.
        one: gives the entry of a name.
    """

    noun: str
    what: str
    names: Callable[[], Iterable[str]]
    one: Callable[[str], ListEntry]


def of_class(name: str, cls: type, what: str = "", source: str = "") -> ListEntry:
    """What a registered class says of itself.

    Args:
        name: of its specs.
        cls: a dataclass with a docstring.
        what: one line, where the class has one; else its docstring's first.
        source: the same; else what follows the docstring's "Source:".
    """
    about = inspect.cleandoc(cls.__doc__ or "")
    arguments = {
        argument.name: None if argument.default is argument.empty else written(argument.default)
        for argument in inspect.signature(cls).parameters.values()
        if argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY)
    }
    place = f"{cls.__module__}:{cls.__qualname__}"
    return ListEntry(
        name, arguments, what or first_line(about), source or source_of(about), about, place
    )


def of_source(name: str, place: str) -> ListEntry:
    """What a class of this project says of itself, of which nothing is imported: it needs torch.

    Args:
        name: of its specs.
        place: module and class, as an entry point says them.
    """
    module, _, wanted = place.partition(":")
    file = Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    arguments: dict[str, str | None] = {}
    for node in _line_of(classes, wanted):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                if "ClassVar" not in ast.unparse(line.annotation):
                    arguments[line.target.id] = line.value and _literal(line.value)
    about = ast.get_docstring(classes[wanted]) or ""
    return ListEntry(name, arguments, first_line(about), source_of(about), about, place)


def _line_of(classes: dict[str, ast.ClassDef], name: str) -> list[ast.ClassDef]:
    """A class and those of its file that it is made from, the first ones first."""
    if name not in classes:
        return []
    bases = [ast.unparse(base) for base in classes[name].bases]
    mine = [one for base in bases for one in _line_of(classes, base)]
    has_fields = any("dataclass" in ast.unparse(one) for one in classes[name].decorator_list)
    return [*mine, classes[name]] if has_fields else mine


def _literal(value: ast.expr) -> str | None:
    try:
        return written(ast.literal_eval(value))
    except ValueError:  # a name or a call
        return ast.unparse(value)


def written(value: Any) -> str:
    """A default as a spec writes it; "none" where nothing is given."""
    if value is None:
        return "none"
    known = isinstance(value, bool | int | float | str | tuple)
    return specs.render("", (value,), {})[1:-1] if known else str(value)


def first_line(about: str) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join(about.split("\n\n")[0].split())


def source_of(about: str) -> str:
    """The first sentence of what a docstring calls its source; empty if there is none."""
    found = re.search(r"^Source: (.*?)(?:\n\n|\Z)", about, re.MULTILINE | re.DOTALL)
    if not found:
        return ""
    text = " ".join(found[1].split())
    return re.split(r"\. (?=[A-Z])", text)[0].rstrip(".")


def show(kind: Kind, name: str | None, format: ListFormat, short: bool = False) -> None:
    """Print a list, or one thing of it in full.

    Args:
        kind: of the things.
        name: of the one to be shown; None shows all.
        format: of the output.
        short: a table has one line each, without arguments and sources.

    Raises:
        UserError: there is none of that name.
    """
    found = list(map(kind.one, kind.names())) if name is None else [kind.one(name)]
    if format == "json":
        print(json.dumps([_record(thing) for thing in found], indent=1, ensure_ascii=False))
    elif name is not None:
        _in_full(found[0], format)
    elif format == "markdown":
        from simkit.simulator.display import markdown

        print("\n".join(markdown((kind.noun, "what", "source"), _rows(found))))
    elif short:
        in_lines({thing.name: thing.what for thing in found})
    else:
        from simkit.cli.tables import say, table

        say(table((kind.noun, "what", "source"), _rows(found), apart=True))


def show_kinds(what: dict[str, str], format: ListFormat) -> None:
    """Print the kinds that can be listed, each with its line."""
    if format == "json":
        rows = [{"name": name, "what": said} for name, said in what.items()]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif format == "markdown":
        from simkit.simulator.display import markdown

        print("\n".join(markdown(("kind", "what"), what.items())))
    else:
        in_lines(what)


def in_lines(what: dict[str, str]) -> None:
    """Print a line for each name; one that a terminal has no room for is cut."""
    from simkit.cli.tables import page

    console, width = page(), max(map(len, what), default=0)
    for name, said in what.items():
        row = Text(f"{name:{width}}  {printable(said)}")
        if console.is_terminal:
            row.truncate(console.width, overflow="ellipsis")
        console.print(row, soft_wrap=True)


def _rows(found: list[ListEntry]) -> list[tuple[str, str, str]]:
    return [(thing.spec, thing.what, thing.source) for thing in found]


def _record(thing: ListEntry) -> dict[str, Any]:
    return {"name": thing.name, "spec": thing.spec, **thing._asdict()}


def _in_full(thing: ListEntry, format: ListFormat) -> None:
    head = f"# `{thing.spec}`" if format == "markdown" else thing.spec
    print("\n\n".join([head, thing.about, f"Defined in {thing.place}."]))
