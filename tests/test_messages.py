"""What messages hold: one line, of bounded length, without keys, whatever was given where."""

import ast
import inspect
import re
import sys
import typing
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
from commands import refused, run

from simkit.cli import _HELP, function_of
from simkit.cli.import_ import ImportSource
from simkit.errors import PolicyError
from traces import stores
from traces.errors import SimkitWarning, UserError, first_line
from traces.messages import MOST_LETTERS, how_many, line, plain
from traces.synthetic import iid
from traces.writer import save

KEY = "SeCrEt/wOrD+1"
URLS = (
    f"s3://AKIA:{KEY}@bucket/x?endpoint_override=127.0.0.1%3A9&scheme=http&session_token={KEY}",
    f"http://user:{KEY}@127.0.0.1:9/x?token={KEY}",
    f"s3:AKIA:{KEY}@bucket/x",
    f"s3:/AKIA:{KEY}@bucket/x?sig={KEY}",
)
REQUIRED = {
    "trace": "TRACE",
    "traces": "TRACE",
    "out": "OUT",
    "policy": "fixed(2)",
    "controller": "static(2)",
    "drafter": "ngram()",
    "engine": "vllm",
    "format": "tokens",
    "head": "none.safetensors",
    "name": "none",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://k:s@b/x?token=abc: no such file", "s3://b/x: no such file"),
        ("'s3:/key:se/cret@bucket/t?sig=q' and", "'s3:/bucket/t' and"),
        ("s3:key:secret@bucket: bad", "s3:bucket: bad"),
        ("S3//key:secret@bucket/x", "S3//bucket/x"),
        ("ss3:key:secret@bucket", "ss3:bucket"),
        ("--ray ray://u:p@h:1: none", "--ray ray://h:1: none"),
        ("https://h/x?token=abc", "https://h/x"),
        ("(https://u:p@h/x?k=v)", "(https://h/x)"),
        ("gs:k:s@b?x=1, see", "gs:b, see"),
        ("ss3:'/bucket/x?token=abc: no", "ss3:'/bucket/x: no"),
        ("ss3:'//token@bucket: no", "ss3:bucket: no"),
        ("ss3:bucket/x?token=abc", "ss3:bucket/x"),
        ("what is meant: is x=1?", "what is meant: is x=1?"),
        ("http://127.0.0.1:8080/ is up", "http://127.0.0.1:8080/ is up"),
        ("policy:svip(head=foo@v1)", "policy:svip(head=foo@v1)"),
        ("did you mean a@b.c?", "did you mean a@b.c?"),
        ("two\n lines\tand \x1b[31mred\u202e", "two lines and \\x1b[31mred\\u202e"),
    ],
)
def test_what_is_left_of_a_text(text, said):
    assert plain(text) == line(text) == str(UserError(text)) == said
    assert str(SimkitWarning(text)) == said
    with pytest.warns(SimkitWarning) as caught:
        warnings.warn(text, SimkitWarning, stacklevel=1)
    assert str(caught[0].message) == said


def test_the_middle_of_a_long_message_is_left_out():
    said = str(PolicyError(f"fixed({'9' * 10_000}): length is too long"))
    assert said.startswith("fixed(999")
    assert said.endswith("9): length is too long")
    assert len(said) <= MOST_LETTERS


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("bad\nmore", "bad"),
        ("\n none of: \n(1) a file,\n(2) another", "none of: (1) a file,"),
        ("one of:\n\n a:\n b", "one of: a: b"),
        ("ends here:", "ends here:"),
        ("", "ValueError"),
    ],
)
def test_a_librarys_line_is_not_cut_at_a_colon(said, line):
    assert first_line(ValueError(said)) == line


@pytest.mark.parametrize(
    ("n", "words", "said"),
    [
        (1, ("request",), "1 request"),
        (0, ("request",), "0 requests"),
        (1000, ("request",), "1,000 requests"),
        (1, ("output ends", "outputs end"), "1 output ends"),
        (2, ("output ends", "outputs end"), "2 outputs end"),
    ],
)
def test_one_thing_is_not_many(n, words, said):
    assert how_many(n, *words) == said


URL = "https://user:PASSW@host/x.json?k=1"


@pytest.mark.parametrize(
    "words",
    [
        *(
            ("import", it, URL, "--out", "OUT")
            for it in typing.get_args(ImportSource)
            if it != "sglang"
        ),
        ("import", "sglang", URL, "--draft-length", "2", "--out", "OUT"),
        ("record", "--target", "a", "--draft", "b", "--prompts", URL, "--out", "OUT"),
        ("record", "--target", URL, "--draft", "b", "--prompts", "P", "--out", "OUT"),
        ("replay", "TRACE", "--policy", "fixed(1)", "--cost", f'measured(file="{URL}")'),
        ("figures", "TRACE", "--style", URL, "--out", "OUT"),
        ("fidelity", "TRACE", "--from", URL),
        ("serving", "TRACE", "--controller", "static(1)", "--arrivals", URL),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_url_is_no_local_file(words, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "P").write_text('{"prompt": "a"}\n')
    said = refused(capsys, *({"TRACE": folder}.get(word, word) for word in words))
    assert said == "simkit: https://host/x.json: URLs are not read here: fetch the file first"


def options():
    """Every option and argument of every command that takes a text or a file."""
    for command in _HELP:
        function = function_of(command)
        hints = typing.get_type_hints(function, include_extras=True)
        hints.pop("return", None)
        parameters = inspect.signature(function).parameters
        needed = {k for k in hints if parameters[k].default is inspect.Parameter.empty}
        for key, hint in hints.items():
            if "str" in str(hint) or "Path" in str(hint):
                yield command, key, {k: "ArgumentInfo" in str(hints[k]) for k in {*needed, key}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("messages") / "trace"
    save(iid(3, 8, 0.7, max_draft=4, seed=1, vocab_size=50), place)
    return place


@pytest.mark.parametrize(
    ("command", "key", "given"), [*options()], ids=lambda x: x if isinstance(x, str) else ""
)
def test_no_command_prints_a_key(command, key, given, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stores, "_TRIES", 1)
    monkeypatch.setenv(stores.FOLDER, str(tmp_path / "copies"))
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("analysis.explore.serve.serve", lambda *a, **k: None)
    for url in URLS:
        words = [command]
        for name, is_argument in sorted(given.items(), key=lambda one: not one[1]):
            value = REQUIRED.get(name, str(tmp_path / "none"))
            value = {"TRACE": str(folder), "OUT": str(tmp_path / "out")}.get(value, value)
            value = url if name == key else value
            words += [value] if is_argument else [f"--{name.replace('_', '-')}", value]
        ended, out, err = run(capsys, *words)
        assert ended in (0, 2), err
        assert "SeCrEt" not in out + err, words
        assert "wOrD" not in out + err, words
        if ended == 2:
            assert len(err.splitlines()) == 1, err
        assert not [*Path().glob("s3*"), *Path().glob("http*")], "a folder has a URL's name"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "data.json"), "data.json: Permission denied"),
        (OSError(5, "Input/output error"), "cannot read or write: Input/output error"),
        (OSError(28, "No space left on device"), "cannot write: No space left on device"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_the_system_refuses_is_not_taken_for_writing(error, said, monkeypatch, capsys):
    def refuse(*args, **more):
        raise error

    monkeypatch.setattr("simkit.cli.app", refuse)
    assert refused(capsys, "policies") == f"simkit: {said}"


def test_google_is_not_asked_for_a_quarter_of_an_hour():
    from traces.urls import impatient

    assert impatient("gs://b/x") == "gs://b/x?retry_limit_seconds=5"
    assert impatient("gcs://b/x?anonymous=true").endswith("true&retry_limit_seconds=5")
    for url in ("gs://b/x?retry_limit_seconds=99", "s3://b/x"):
        assert impatient(url) == url


ANALYSIS = Path(__file__).parents[1] / "analysis"
NOUNS = "prompt position run request step group bin seed node token row pair round policy".split()


def test_numbers_of_things_are_written_by_how_many():
    """No text has a number of things in the plural whatever the number: "1 prompts"."""
    plural = re.compile(rf"^ ({'|'.join(NOUNS)})s\b")
    found = []
    for file in sorted(ANALYSIS.rglob("*.py")):
        for text in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(text, ast.JoinedStr):
                continue
            for value, then in pairwise(text.values):
                if isinstance(then, ast.Constant) and plural.match(str(then.value)):
                    if isinstance(value, ast.FormattedValue) and _may_be_one(value):
                        found.append(f"{file.name}:{text.lineno}: {ast.unparse(value)}")
    assert not found


def _may_be_one(value: ast.FormattedValue) -> bool:
    """Whether it is a number that may be one: no constant of its module, and no policy."""
    asked = ast.unparse(value.value)
    return asked != "policy" and not asked.split(".")[-1].split("[")[0].isupper()
