import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import MODEL

from traces.differences import difference
from traces.errors import RecordError, TraceError
from traces.manifest import FileInfo, Manifest, read_manifest
from traces.sampler import Sampler

text = st.text(st.characters(codec="utf-8"), max_size=9)
counts = st.integers(0, 2**40)
models = st.builds(
    replace,
    st.just(MODEL),
    id=text,
    revision=st.none() | text,
    n_parameters=counts,
    shape=st.dictionaries(text, counts, max_size=3),
)
samplers = st.just(Sampler()) | st.builds(
    Sampler,
    temperature=st.floats(0.01, 2),
    top_k=st.integers(0, 99),
    top_p=st.floats(0.01, 1),
    draft_temperature=st.none() | st.just(0.0) | st.floats(1e-30, 2),
)
names = st.from_regex(r"(positions|scores)/[a-z0-9]{1,5}\.parquet", fullmatch=True)
manifests = st.builds(
    Manifest,
    max_draft=st.integers(1, 99),
    max_new_tokens=st.integers(1, 9999),
    complete=st.booleans(),
    kind=st.sampled_from(["path", "lattice"]),
    target=st.none() | models,
    draft=st.none() | models,
    libraries=st.dictionaries(text, text, max_size=3),
    sampler=samplers,
    seed=st.integers(-(2**63), 2**63),
    batch_size=st.integers(1, 99),
    n_prompts=counts,
    prompts_sha256=st.none() | text,
    eos_token_ids=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    branch_target=st.booleans(),
    files=st.dictionaries(names, st.builds(FileInfo, counts, counts, text), max_size=3),
)
PLAIN = Manifest(4, 8, target=MODEL, libraries={"b": "1", "a": "2"}, n_prompts=3)


@settings(max_examples=40, deadline=None)
@given(manifests)
def test_round_trip(manifest):
    text = manifest.to_json()
    back = Manifest.from_json(text)
    assert back == manifest
    assert back.to_json() == text
    assert difference(manifest, back) is None


def test_text_does_not_depend_on_the_order_of_mappings():
    other = replace(PLAIN, libraries=dict(sorted(PLAIN.libraries.items())))
    assert list(other.libraries) != list(PLAIN.libraries)
    assert other.to_json() == PLAIN.to_json()
    assert next(iter(json.loads(PLAIN.to_json()))) == "schema_version"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema version 2 is too new, this simkit reads version 1"),
        ({"schema_version": 0}, "schema version 0 is too old, this simkit reads version 1"),
        ({"schema_version": "1"}, "schema_version must be a whole number, not 1"),
        ({"max_draft": 0}, "max_draft must be >= 1, not 0"),
        ({"max_draft": True}, "max_draft must be a whole number, not true"),
        ({"max_draft": 2.5}, "max_draft must be a whole number, not 2.5"),
        ({"complete": 1}, "complete must be true or false, not 1"),
        ({"kind": "bush"}, "unknown kind of drafter 'bush'"),
        ({"color": 3}, "unknown field color"),
        ({"eos_token_ids": 3}, "eos_token_ids must be a list, not 3"),
        ({"eos_token_ids": [1, "a"]}, "eos_token_ids[1] must be a whole number, not a"),
        ({"sampler": {"temperature": -1}}, "temperature must be a finite number >= 0, not -1"),
        ({"sampler": {"top_k": None}}, "sampler.top_k must be a whole number, not null"),
        ({"sampler": []}, "sampler must be an object, not []"),
        ({"target": {"id": "x"}}, "field target.revision is missing"),
        ({"libraries": {"numpy": 2}}, "libraries.numpy must be text, not 2"),
        ({"files": {"a": {}}}, "field files.a.rows is missing"),
        ({"files": {"../a": {"rows": 1, "bytes": 1, "sha256": ""}}}, "files names '../a'"),
        ({"files": {"/a": {"rows": 1, "bytes": 1, "sha256": ""}}}, "files names '/a'"),
    ],
)
def test_a_wrong_field_is_named(changes, message):
    data = json.loads(PLAIN.to_json()) | changes
    with pytest.raises(TraceError) as error:
        Manifest.from_json(json.dumps(data), "T/manifest.json")
    assert str(error.value).startswith("T/manifest.json: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", "3", '{"schema_version": 1}'])
def test_text_that_is_no_manifest(text):
    with pytest.raises(TraceError, match=r"^M: [^\n]*$"):
        Manifest.from_json(text, "M")


def test_a_field_with_a_default_may_be_absent():
    text = json.dumps({"schema_version": 1, "max_draft": 4, "max_new_tokens": 8})
    assert Manifest.from_json(text) == Manifest(4, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed is 0 there, 1 here"),
        ({"device": "cpu"}, "device is null there, cpu here"),
        ({"target": None}, "target is "),
        ({"target": replace(MODEL, id="c")}, "target.id is a/b there, c here"),
        ({"libraries": {"b": "1"}}, "libraries.a is 2 there, null here"),
        ({"sampler": Sampler(1.0)}, "sampler.temperature is 0.0 there, 1.0 here"),
        ({"eos_token_ids": (1,)}, "eos_token_ids is [] there, [1] here"),
    ],
)
def test_difference_names_the_first_field(changes, message):
    assert (difference(PLAIN, replace(PLAIN, **changes)) or "").startswith(message)


def test_the_hash_covers_the_recording_and_nothing_added():
    info = FileInfo(1, 2, "x")
    recorded = replace(PLAIN, files={"positions/00000.parquet": info})
    added = replace(recorded, files={**recorded.files, "latency.parquet": info})
    assert added.content_hash() == recorded.content_hash()
    other = replace(recorded, files={"positions/00000.parquet": replace(info, sha256="y")})
    hashes = {m.content_hash() for m in (PLAIN, recorded, other, replace(recorded, seed=1))}
    assert len(hashes) == 4


def test_folders_without_a_manifest(tmp_path):
    for folder, message in [
        (tmp_path / "none", "no such folder"),
        (tmp_path, "not a trace, it has no manifest.json"),
        (tmp_path / "file", "not a folder, so not a trace"),
    ]:
        (tmp_path / "file").touch()
        with pytest.raises(TraceError) as error:
            read_manifest(folder)
        assert str(error.value) == f"{folder}: {message}"
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match=r"manifest\.json: not UTF-8 text"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(TraceError, match=r"manifest\.json: cannot be read: Is a directory"):
        read_manifest(tmp_path)


def test_a_temperature_beyond_all_floats_is_refused():
    with pytest.raises(RecordError, match="temperature must be a finite number >= 0, not 1000"):
        Sampler(10**400)
