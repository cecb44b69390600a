"""Help: no fragments, and what most people need first."""

import re

import pytest
import typer
from commands import refused, status

from simkit import cli
from simkit.cli.kinds import KINDS
from simkit.cli.options import MORE

GROUP = typer.main.get_command(cli.app)
CONTEXT = typer.Context(GROUP)
COMMANDS = {name: GROUP.get_command(CONTEXT, name) for name in GROUP.list_commands(CONTEXT)}
FRAGMENT = re.compile(r"(?:^|[.;:] )(?:of|to|that|as|so many|whose)\b", re.IGNORECASE)
"""How a text begins, or goes on behind a stop, that hangs on nothing: "Of the intervals."."""
LONG = [name for name, c in COMMANDS.items() if any(p.rich_help_panel == MORE for p in c.params)]


def helps():
    """Texts of the command line's help, by command and option."""
    found = {("simkit", name): text for name, text in cli._HELP.items()}
    found |= {("simkit", group): group for group in cli._GROUPS}
    for name, command in COMMANDS.items():
        found |= {(name, p.name): p.help or "" for p in command.params}
        panels = {p.rich_help_panel or "" for p in command.params}
        found |= {(name, panel): panel for panel in panels}
    return found


def page(capsys, *arguments):
    assert status(*arguments) == 0
    return capsys.readouterr().out


def options(text):
    """Options that a page of help explains, not those that it mentions."""
    return set(re.findall(r"^│ [* ]{0,3}(--[a-z][a-z-]*)", text, re.MULTILINE))


def own(command, panel=None):
    """Its long options; those of a panel alone."""
    long = [max(p.opts, key=len) for p in command.params if p.param_type_name == "option"
            and panel in (None, p.rich_help_panel)]  # fmt: skip
    return set(long)


def test_no_help_is_a_fragment():
    assert len(helps()) > 200
    assert not {at: text for at, text in helps().items() if FRAGMENT.search(text)}


@pytest.mark.parametrize("text", ["Of the intervals.", "Serve: so many prompts.", "To test; again"])
def test_fragments_are_seen(text):
    assert FRAGMENT.search(text)


@pytest.mark.parametrize("command", LONG)
def test_help_has_what_most_need_and_help_all_has_all(command, capsys, monkeypatch):
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    short, whole = page(capsys, command, "--help"), page(capsys, command, "--help-all")
    every, seldom = own(COMMANDS[command]), own(COMMANDS[command], MORE)
    assert options(whole) == every | {"--help"}
    assert options(short) == (every - seldom) | {"--help"}
    assert max(map(len, [*short.splitlines(), *whole.splitlines()])) <= 80
    said = "option" if len(seldom) == 1 else "options"
    assert f"--help-all shows {len(seldom)} more {said}." in short and MORE not in short
    assert "--help-all" not in whole and MORE in whole


def test_what_help_leaves_out_is_parsed_and_completed(capsys, monkeypatch):
    assert "--seeds" in refused(capsys, "serving", "reference", "--seeds", "x")
    assert "--confidence" in refused(capsys, "sweep", "reference", "--confidence", "x")
    monkeypatch.setenv("_SIMKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "simkit serving --kv")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert page(capsys).split() == ["--kv-tokens"]


def test_list_names_its_kinds(capsys):
    assert [line.split()[0] for line in page(capsys, "list").splitlines()] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_list_has_a_line_for_each(kind, capsys):
    names = list(KINDS[kind].names())
    lines = page(capsys, "list", kind).splitlines()
    assert len(names) > 4 and len(lines) == len(names)
    assert all(line.startswith(f"{name} ") for line, name in zip(lines, names, strict=True))
    assert names[-1] in page(capsys, "list", kind, names[-1])
    assert refused(capsys, "list", kind, "nothing-like-it").startswith("simkit: ")


def test_lists_have_one_owner(capsys):
    for kind, name in (("policies", "svip"), ("drafters", "suffix"), ("costs", "linear")):
        assert page(capsys, kind, name) == page(capsys, "list", kind, name)


def test_an_unknown_kind_is_refused(capsys):
    assert refused(capsys, "list", "polices") == (
        "simkit: unknown kind 'polices' (did you mean policies?)"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["list", "pol"], {"policies"}), (["list", "policies", "svi"], {"svip"})],
)
def test_kinds_and_names_are_completed(words, expected, capsys, monkeypatch):
    monkeypatch.setenv("_SIMKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["simkit", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert set(page(capsys).split()) == expected
