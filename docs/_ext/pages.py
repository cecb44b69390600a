"""What the site needs of Sphinx besides: colours of blocks, and pages made from the program."""

from __future__ import annotations

import re
from typing import Any

import click
import typer.main
from blocks import language_of
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

STAR = re.compile(r"(?<![`*\\])\*(?![*`])")  # a lone asterisk of a formula, no emphasis


class Languages(SphinxTransform):
    """Give blocks without a language the one that they are written in."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Name the language of every block that has none."""
        for node in self.document.findall(nodes.literal_block):
            if "language" not in node:
                node["language"] = language_of(node.astext())
                node["force"] = True  # a placeholder in a command is no error


class Commands(Directive):
    """What `simkit COMMAND --help-all` says of every command, as a section with a table each."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        from simkit.cli import app

        group = typer.main.get_command(app)
        context = click.Context(group, info_name="simkit")
        return [_section(group, context, name) for name in group.list_commands(context)]


def _section(group: Any, context: Any, name: str) -> nodes.section:
    command = group.get_command(context, name)
    section = nodes.section(ids=[f"simkit-{name}"], names=[f"simkit {name}"])
    section += nodes.title("", "", nodes.literal(text=f"simkit {name}"))
    section += nodes.paragraph(text=command.help)
    own = click.Context(command, info_name=name, parent=context)
    usage = " ".join(["simkit", name, *command.collect_usage_pieces(own)])
    section += nodes.literal_block(usage, usage, language="text")
    rows = [_row(parameter, own) for parameter in command.params if _shown(parameter)]
    if rows:
        section += _table(rows)
    return section


def _shown(parameter: Any) -> bool:
    return not getattr(parameter, "hidden", False) and parameter.name != "help"


def _row(parameter: Any, context: click.Context) -> tuple[str, str]:
    record = parameter.get_help_record(context)
    if record is None:  # an argument without help
        return parameter.human_readable_name, ""
    return record


def _table(rows: list[tuple[str, str]]) -> nodes.table:
    table, group, body = nodes.table(), nodes.tgroup(cols=2), nodes.tbody()
    table += group
    group += [nodes.colspec(colwidth=35), nodes.colspec(colwidth=65), body]
    for term, what in rows:
        row = nodes.row()
        for cell in (nodes.literal(text=term), nodes.Text(what)):
            row += nodes.entry("", nodes.paragraph("", "", cell))
        body += row
    return table


def _docstring(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]):
    """Keep asterisks of formulas as they are; of a module only the first paragraph."""
    if what == "module":
        lines[:] = lines[: lines.index("")] if "" in lines else lines
    lines[:] = [STAR.sub(r"\\*", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_transform(Languages)
    app.add_directive("simkit-commands", Commands)
    app.connect("autodoc-process-docstring", _docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
