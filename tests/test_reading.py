"""Files that are special, too large, or nested without end are refused before they are read."""

import os

import pytest

from simkit.costs import parse
from simkit.errors import CostError
from simkit.importers import jsonl
from traces import reading
from traces.errors import RecordError, TraceError, UserError
from traces.manifest import read_manifest
from traces.record.prompts import read_prompts

DEEP = {"[": 100_000 * "[", "{": 100_000 * '{"a":', "flat": 200 * "[" + 200 * "]"}


class Tokenizer:
    chat_template = None

    def encode(self, text, **options):
        return [1] * len(text)


def special(folder):
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "endless").symlink_to("/dev/zero")
    (folder / "round").symlink_to(folder / "round")
    return ["pipe", "folder", "endless", "round", "none"]


READERS = {
    "prompts": lambda file: read_prompts(file, Tokenizer(), 9),
    "import": lambda file: list(jsonl.read(file)),
    "bytes": lambda file: reading.read_bytes(file, 9, UserError),
}


@pytest.mark.parametrize("reader", READERS)
def test_special_files(tmp_path, reader):
    for name in special(tmp_path):
        with pytest.raises(UserError, match=rf"^{tmp_path / name}: cannot be read: [^\n]*$"):
            READERS[reader](tmp_path / name)


@pytest.mark.parametrize("suffix", [".json", ".toml", ".parquet"])
def test_special_files_as_costs(tmp_path, suffix):
    for name in special(tmp_path):
        (tmp_path / name).rename(tmp_path / f"{name}{suffix}") if name != "none" else None
        file = tmp_path / f"{name}{suffix}"
        with pytest.raises(CostError, match=rf"^{file}: cannot be read: [^\n]*$"):
            cost = parse(str(file))
            cost.times(None)  # type: ignore[arg-type]  # a Parquet file is read here


def test_special_manifests(tmp_path):
    for name in special(tmp_path)[:-1]:
        folder = tmp_path / f"trace-{name}"
        folder.mkdir()
        (tmp_path / name).rename(folder / "manifest.json")
        with pytest.raises(TraceError, match="cannot be read"):
            read_manifest(folder)


def test_files_too_large(tmp_path):
    file = tmp_path / "cost.json"
    with open(file, "wb") as stream:
        stream.truncate(2**40)  # takes no room
    with pytest.raises(CostError, match="larger than 1 MiB"):
        parse(str(file))
    (tmp_path / "manifest.json").symlink_to(file)
    with pytest.raises(TraceError, match="larger than 64 MiB"):
        read_manifest(tmp_path)


def test_a_line_too_long(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "x"}\n{"prompt": "' + "x" * 9 * 2**20 + '"}\n')
    with pytest.raises(RecordError, match="line 2: the line is longer than 8 MiB"):
        read_prompts(file, Tokenizer(), 9)


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_nested_json(tmp_path, text):
    for value in (text, f'{{"kind": {text}}}'):
        with pytest.raises(UserError, match=r"^W: [^\n]*$"):
            reading.parse_json(value, "W", UserError)


@pytest.mark.parametrize(
    "text",
    [
        "a." * 30_000 + "a = 1",
        "[" + "a." * 30_000 + "a]",
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 1000,
        "a = nan",
        "a = -inf",
        "a = " + "9" * 400,
        "a = " + "9" * 5000,
        "a = 1\na = 2",
        'a = "\\ud800"',
    ],
)
def test_toml(text):
    with pytest.raises(UserError, match=r"^W: [^\n]*$"):
        reading.parse_toml(text, "W", UserError)


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[1, Infinity]",
        "1e999",
        "9" * 400,
        "9" * 5000,
        '{"a": 1, "a": 1}',
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '"\\ud83d"',
    ],
)
def test_json(text):
    with pytest.raises(UserError, match=r"^W: [^\n]*$"):
        reading.parse_json(text, "W", UserError)


def test_what_is_fine():
    assert reading.parse_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}', "W", UserError) == {"a": "😀"}
    assert reading.parse_json("[[1, 2], {}]", "W", UserError) == [[1, 2], {}]
    assert reading.parse_toml('a = 1\n[b]\nc = "x.y.z"', "W", UserError)["b"] == {"c": "x.y.z"}


def test_lines_end_in_a_line_feed_alone(tmp_path):
    """JSON allows a line separator inside of a text, where `str.splitlines` cuts."""
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + '{"prompt": "a\u2028b\u0085c\u2029"}\r\n\n{"prompt": "d"}'.encode()
    )
    prompts = read_prompts(file, Tokenizer(), 9)
    assert [(p.id, p.text) for p in prompts] == [("1", "a\u2028b\u0085c\u2029"), ("3", "d")]


@pytest.mark.parametrize("name", ["id", "task"])
def test_names_of_prompts(tmp_path, name):
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(f'{{"prompt": "x", "{name}": {value}}}' for value in ("null", 7)))
    found = [getattr(p, name) for p in read_prompts(file, Tokenizer(), 9)]
    assert found == [{"id": "1", "task": "default"}[name], "7"]
    for value in ("[1]", "true", "1.5", '{"a": 1}', '"\\udc00"'):
        file.write_text(f'{{"prompt": "x", "{name}": {value}}}')
        with pytest.raises(RecordError, match=f"line 1: {name}"):
            read_prompts(file, Tokenizer(), 9)


@pytest.mark.parametrize("value", ["[1]", '"x"', "true", "null", "-1", "{}", "1e308", "9" * 299])
def test_arguments_of_costs(tmp_path, value):
    file = tmp_path / "cost.json"
    file.write_text(f'{{"kind": "linear", "draft_s": {value}, "target_s": 1}}')
    try:
        parse(str(file))
    except CostError:
        return
    assert value in ("1e308", "9" * 299)
