"""What stands in code blocks works: Python runs, commands are parsed, cheap ones run.

What needs models, a GPU or somebody's file is only parsed, as is what takes long and another test
runs; the package of docs/extending.md is built and used in `test_extending.py`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
import pytest
import typer.main

import simkit
import traces
from simkit.cli import app, main
from simkit.costs import parse as parse_cost
from simkit.policies.registry import expand
from simkit.serving.controllers import expand as expand_controllers
from traces.errors import UserError
from traces.finding import bundled

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))
from blocks import Block, blocks, commands, is_python, rest  # noqa: E402

FILES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
FILES += [*ROOT.glob("docs/*.md"), ROOT / "benchmarks/README.md", ROOT / "notebooks/README.md"]
FILES += [ROOT / "traces/reference/README.md"]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
EXTENDING = "docs/extending.md"
NEEDS_MODELS = ("simkit.record(", "parallel.load(", "feature.load(")
LONG = {  # half a minute and more, or a page each; where they are run instead
    "claims.check(": "test_claims.py",
    "report(": "test_report.py",
    "tables(": "test_figures.py",
}
CHEAP = ("replay", "sweep", "info", "policies", "costs", "drafters")  # on what comes with simkit
INLINE = re.compile(r"`(simkit [a-z]+ [^`]*--[^`]*)`")


def all_blocks(language: str) -> list[tuple[str, Block]]:
    return [
        (page, block)
        for page, text in PAGES.items()
        for block in blocks(text)
        if block.language == language
    ]


def all_commands(program: str) -> list[tuple[str, int, list[str]]]:
    return [
        (page, block.line, words)
        for page, block in all_blocks("bash")
        for words in commands(block.text)
        if words[:1] == [program]
    ]


def python_of(block: Block) -> str:
    if block.language == "python":
        return block.text
    following = rest(block.text) if block.language == "bash" else ""
    return following if is_python(following) else ""


def runs(words: list[str]) -> bool:
    """Whether a command is cheap and asks for nothing that does not come with simkit."""
    if len(words) < 2 or words[0] != "simkit" or words[1] not in CHEAP:
        return False
    first = words[2:3]
    known = not first or first[0] in bundled() or words[1] in ("policies", "costs", "drafters")
    files = [word for word in words[3:] if word.endswith((".parquet", ".json"))]
    made = [after for before, after in zip(words, words[1:], strict=False) if before == "-o"]
    return known and files == made


WITH_PYTHON = sorted(
    {page for page, text in PAGES.items() for block in blocks(text) if python_of(block)}
    | {page for page, _, words in all_commands("simkit") if runs(words)}
)


@pytest.fixture(scope="module")
def group():
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_and_cheap_commands_run(page, tmp_path, monkeypatch, capsys):
    """In the order of the page, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simkit, "serve", partial(simkit.serve, requests=40), raising=False)
    names = {"simkit": simkit, "traces": traces, **given()}
    for block in blocks(PAGES[page]):
        for words in commands(block.text) if block.language == "bash" else ():
            if runs(words) and first_page(words) in (page, ""):
                with pytest.raises(SystemExit) as ended:
                    main(words[1:])
                assert ended.value.code == 0, (words, capsys.readouterr().err)
        source = python_of(block)
        program = compile(source, f"{page}:{block.line}", "exec")
        if page != EXTENDING and not any(one in source for one in (*NEEDS_MODELS, *LONG)):
            exec(program, names)


def given() -> dict[str, object]:
    """What a fragment may take for granted: a text and some requests."""
    text = np.tile(np.arange(2, 12, dtype=np.int32), 8)
    sizes = {"n_prompt": 20, "eos": (0,), "max_new_tokens": 60}
    return {"text": text, "requests": [(text, 20), (text[5:], 20)], **sizes}


def first_page(words: list[str]) -> str:
    """The page on which a command is run; one that writes a file is run on each."""
    pages = [page for page, _, others in all_commands("simkit") if others == words]
    return min(pages) if "-o" not in words else ""


def test_what_is_run_elsewhere_is_run_there():
    for call, test in LONG.items():
        assert call.removesuffix("(").split(".")[-1] in (ROOT / "tests" / test).read_text()


def test_no_python_hides_in_a_block_that_is_not_parsed():
    hidden = re.compile(r"^(import|from) \w+", re.MULTILINE)
    texts = all_blocks("text")
    assert not [(page, one.line) for page, one in texts if hidden.search(one.text)]
    for page, block in all_blocks("python"):
        assert ast.parse(block.text).body, (page, block.line)


def test_commands_are_the_programs_own(group):
    """Every command with all its options, required ones among them, and its specs."""
    context = click.Context(group, info_name="simkit")
    found = all_commands("simkit")
    assert len(found) > 100
    wrong = []
    for page, line, words in found:
        try:
            parsed(group, context, words[1:], specs=page != EXTENDING)
        except (click.ClickException, UserError, ValueError) as e:
            wrong.append(f"{page}:{line}: {' '.join(words)}: {getattr(e, 'message', e)}")
        except Exception as e:
            if not hasattr(e, "format_message"):
                raise
            wrong.append(f"{page}:{line}: {' '.join(words)}: {e.format_message()}")
    assert not wrong, "\n".join(wrong)


def parsed(group, context, words, specs=True):
    if not words or words[0].startswith("-"):
        assert not words or words[0] in {o for p in group.params for o in p.opts} | {"--help"} | {
            "--version",
            "--install-completion",
            "--show-completion",
        }
        return
    command = group.get_command(context, words[0])
    assert command is not None, f"no command {words[0]}"
    try:
        own = command.make_context(f"simkit {words[0]}", list(words[1:]))
    except BaseException as e:
        if type(e).__name__ != "Exit":  # a list that was printed
            raise
        return
    if specs:
        check_specs(own.params)


def check_specs(given):
    for text in several(given.get("policy")):
        assert expand(text)
    for text in several(given.get("controller")):
        assert expand_controllers(text)
    cost = given.get("cost") or ""
    if cost and "file=" not in cost and not cost.endswith((".parquet", ".json", ".toml")):
        parse_cost(cost)


def several(found):
    """What an option was given, one or more; a gap to be filled is left out."""
    listed = [found] if isinstance(found, str) else found or ()
    return [text for text in listed if text != "…"]


@pytest.mark.parametrize(
    "line",
    [
        "replay reference --policy fixed --cots linear",
        "replay reference",
        "replay reference --policy 'fixd(3)'",
        "serving reference --controller 'emma(3)'",
        "reply reference --policy fixed",
    ],
)
def test_a_wrong_command_is_found_out(group, line):
    import shlex

    with pytest.raises(Exception) as refused:  # noqa: B017, PT011
        parsed(group, click.Context(group, info_name="simkit"), shlex.split(line))
    assert not isinstance(refused.value, TypeError | AttributeError)


def test_options_in_running_text_exist(group):
    context = click.Context(group, info_name="simkit")
    for page, text in PAGES.items():
        for found in INLINE.findall(text):
            command = group.get_command(context, found.split()[1])
            assert command is not None, (page, found)
            known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
            said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", found))
            assert said <= known, (page, found, said - known)


def test_programs_of_this_repository_exist_with_their_options():
    """`python -m …`: the module is there, and each option is one that its folder knows."""
    sources = {
        top: "".join(path.read_text(encoding="utf-8") for path in (ROOT / top).rglob("*.py"))
        for top in ("benchmarks", "traces", "simkit")
    }
    for page, line, words in all_commands("python") + all_commands("taskset"):
        if "-m" not in words:
            continue
        module = words[words.index("-m") + 1]
        top = module.split(".")[0]
        if top not in sources:
            assert top in ("venv", "pip"), (page, line)
            continue
        assert find_spec(module), (page, line, module)
        for option in (word for word in words if word.startswith("--") and word != "--help"):
            name = option[2:].replace("_", "-").replace("-", "[_-]")
            assert re.search(rf"\b{name}\b", sources[top]), (page, line, option)


def test_targets_of_make_exist():
    for page, line, words in all_commands("make"):
        file = words.pop(words.index("-f") + 1) if "-f" in words else "Makefile"
        makefile = (ROOT / file).read_text(encoding="utf-8")
        for word in words[1:]:
            if not (word.startswith("-") or "=" in word or word.isdigit()):
                assert re.search(rf"^{word}:", makefile, re.MULTILINE), (page, line, word)


@pytest.mark.parametrize("file", ["Makefile", "traces/recipes/Makefile"])
def test_no_recipe_takes_the_place_of_another(file):
    """The last of two definitions would be run in the place of the first."""
    text = (ROOT / file).read_text(encoding="utf-8")
    names = re.findall(r"^define (\w+)|^(\w+) *:?=|^([\w-]+):", text, re.MULTILINE)
    found = ["".join(name) for name in names]
    assert len(found) == len(set(found)), sorted(n for n in set(found) if found.count(n) > 1)


def test_extras_to_install_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for page, line, words in all_commands("pip"):
        for word in words:
            for names in re.findall(r"\[(.*)\]", word):
                assert set(names.split(",")) <= set(extras), (page, line, word)
