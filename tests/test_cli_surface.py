"""What every command line should have: a version, completion, groups in its help, lists, tables."""

import json
import os
import subprocess
import sys

import pytest
import typer
from commands import refused, status
from rich.console import Console

from simkit import cli, policies
from simkit.cli import complete, tables
from simkit.costs import catalogue
from traces.attach import registry as drafters
from traces.finding import bundled


def run(capsys, *arguments):
    """Output and errors of a command that ends well."""
    assert status(*arguments) == 0
    return capsys.readouterr()


def test_version(capsys):
    assert run(capsys, "--version").out.startswith("simkit 0.")


def test_help_is_in_groups(capsys):
    said = run(capsys, "--help").out
    groups = ["Record a trace", "Time models", "Replay policies", "Serve", "Analyse"]
    at = [said.index(f"─ {group} ─") for group in groups]
    assert at == sorted(at)
    assert at[2] < said.index(" tune ") < at[3]
    assert "--install-completion" in said


def test_options_are_in_groups(capsys):
    said = run(capsys, "record", "--help").out
    groups = ["Options", "How tokens are drawn", "What is kept", "How models are run"]
    at = [said.index(f"─ {group} ─") for group in groups]
    assert at == sorted(at)
    assert at[1] < said.index("--temperature") < at[2] < said.index("--mix") < at[3]


def test_out_is_o_everywhere():
    group = typer.main.get_command(cli.app)
    context = typer.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    options = {
        name: [p.opts for p in c.params if "--out" in p.opts] for name, c in commands.items()
    }
    there = {name: "-o" in found[0] for name, found in options.items() if found}
    assert len(there) > 10
    assert all(there.values()), there


@pytest.mark.parametrize("command", ["sweep", "tune", "serving"])
def test_an_option_of_another_name_now_is_told(command, capsys, tmp_path):
    """`--threads` was what `--workers` is; the names that are spelt alike are other options."""
    said = refused(capsys, command, "reference", "--threads", "2")
    assert said == "simkit: No such option: --threads (Possible options: --workers)"
    file = tmp_path / "study.toml"
    file.write_text(f"[{command}]\nthreads = 2\n")
    said = refused(capsys, "--study", file, command, "reference")
    assert said.endswith(f"{command} has no option 'threads' (did you mean workers?)")


def test_a_module_is_the_command():
    said = subprocess.run(
        [sys.executable, "-m", "simkit", "--version"], check=True, capture_output=True, text=True
    )
    assert said.stdout.startswith("simkit 0.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rep"], {"replay", "report"}),
        (["replay", "reference-s"], {"reference-sampled"}),
        (["replay", "reference", "--policy", "sv"], {"svip"}),
        (["sweep", "reference", "--cost", "roof"], {"roofline"}),
        (["figures", "reference", "--only", "tree_b"], {"tree_budget"}),
        (["drafters", "suf"], {"suffix"}),
        (["replay", "reference", "--first-token", "p"], {"prefill"}),
    ],
)
def test_shells_complete_words(words, expected, monkeypatch, capsys):
    monkeypatch.setenv("_SIMKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["simkit", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert set(run(capsys).out.split()) == expected


def test_what_is_completed_is_what_there_is():
    assert complete.traces("") == bundled()
    assert complete.policies("") == policies.names()
    assert complete.drafters("") == drafters.names()


def test_figures_are_completed_without_their_imports():
    code = (
        "import sys; from simkit.cli import complete; found = complete.figures('')\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from analysis.figures import FIGURES; assert found == sorted(FIGURES.known())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


@pytest.mark.parametrize("command", ["policies", "drafters", "costs"])
def test_lists(command, capsys):
    known = {
        "policies": policies.names(),
        "drafters": drafters.names(),
        "costs": [entry.name for entry in catalogue()],
    }[command]
    shown = run(capsys, command).out
    found = json.loads(run(capsys, command, "--format", "json").out)
    pages = run(capsys, command, "--format", "markdown").out.splitlines()
    assert [one["name"] for one in found] == known
    assert all(one["what"] and one["place"] for one in found)
    assert len(pages) == len(known) + 2 and pages[1] == "| --- | --- | --- |"
    assert all(name in shown for name in known)


def test_kinds_are_listed_in_the_format_that_is_asked_for(capsys):
    names = [one["name"] for one in json.loads(run(capsys, "list", "--format", "json").out)]
    assert [line.split()[0] for line in run(capsys, "list").out.splitlines()] == names
    assert len(run(capsys, "list", "--format", "markdown").out.splitlines()) == len(names) + 2


def test_arguments_of_a_list_are_those_of_the_specs(capsys):
    for one in json.loads(run(capsys, "policies", "--format", "json").out):
        given = {name: v for name, v in one["arguments"].items() if v not in (None, "null", "none")}
        if None not in one["arguments"].values():
            spec = ", ".join(f"{name}={value}" for name, value in given.items())
            assert policies.parse(f"{one['name']}({spec})") == policies.get(one["name"])()


def test_sources_read_say_what_imported_classes_do(capsys):
    """The lists of drafters need no torch: what is read in the sources is what the classes say."""
    from simkit.cli.listing import of_class, of_source

    for name, place in drafters.BUILT_IN.items():
        assert of_source(name, place) == of_class(name, drafters.get(name))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["policies", "svip"], "Source: SVIP, Algorithm 1."),
        (["drafters", "feature"], "EAGLE-1, 2 and 3"),
        (["costs", "pacer:deepseek-1.3b-33b"], "PACER Table 14"),
    ],
)
def test_one_of_a_list_in_full(arguments, says, capsys):
    assert says in run(capsys, *arguments).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["repaly"], "no command 'repaly' (did you mean replay?)"),
        (["policies", "svpi"], "unknown policy 'svpi' (did you mean svip?)"),
        (["drafters", "suffxi"], "unknown drafter 'suffxi' (did you mean suffix?)"),
        (["costs", "linea"], "unknown cost 'linea' (did you mean linear?)"),
        (
            ["attach", "t", "suffix(shared=true)"],
            "unexpected argument 'suffix(shared=true)': did you mean --drafter"
            " 'suffix(shared=true)'?",
        ),
        (
            ["replay", "reference", "svip"],
            "unexpected argument 'svip': did you mean --policy svip?",
        ),
    ],
)
def test_names_that_are_not_there(arguments, says, capsys):
    assert refused(capsys, *arguments) == f"simkit: {says}"


def shown(table, width):
    console = Console(width=width, color_system=None)
    with console.capture() as text:
        tables.say(table, console)
    return text.get()


def test_a_table_that_has_no_room_is_stacked():
    heads, row = ("policy", "speedup"), ("heuristic(initial=5)", "1.234 [1.100, 1.345]")
    table = tables.table(heads, [row])
    assert shown(table, 80).splitlines()[-1].split("   ")[0] == row[0]
    lines = [line.rstrip() for line in shown(table, 30).splitlines()]
    assert lines == ["policy   heuristic(initial=5)", "speedup  1.234 [1.100, 1.345]", ""]


def test_columns_that_have_no_room_are_named(monkeypatch, capsys):
    monkeypatch.setattr(tables, "page", lambda: Console(width=80, color_system=None))
    found = run(capsys, "replay", "reference", "--policy", "fixed(3)")
    assert "draft s" not in found.out and "total s" in found.out
    assert (
        "note: 6 columns more (steps, prefill s, draft s, verify s, policy s, overhead s): widen"
        in (found.err)
    )
