"""Rows on mixed contexts against plain decoding, and their way to the disk and back."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commands import refused, run, status
from models import EOS, tiny_pair, tiny_prompts
from test_record import SAMPLERS, assert_row, key_of, logits_of, one_position, plan_of
from trace_files import edit, hashes, rewrite, with_value

import traces
from traces import RecordError, TraceError, schema
from traces.describe import describe
from traces.files import ADDED
from traces.finding import bundled
from traces.manifest import MANIFEST, Manifest, read_manifest
from traces.record import draws
from traces.record.recorder import record
from traces.record.shard import record_shard
from traces.record.statistics import draft_rows, draft_statistics, draft_token
from traces.validate import validate

TINY = 1e-300  # no draw is that small: the mixed text is the output
SHARD = "mixed/00001.parquet"
REFERENCE = Path(traces.__file__).parent / "reference"


def shard_of(sampler="t1", mix=0.5, n=4, **settings):
    return record_shard(
        tiny_pair(), tiny_prompts(n), 0, plan_of(SAMPLERS[sampler], mix=mix, **settings)
    )


def texts(rows, column):
    """The values of each sequence, as lists."""
    return [rows[column][rows["sequence"] == s].tolist() for s in np.unique(rows["sequence"])]


def proposals(pair, plan, sequence, prompt, y):
    """What the draft proposes behind each front of an output, without a cache."""
    own = []
    for i in range(len(y)):
        q = draft_rows(logits_of(pair.draft, prompt + y[:i], pair.vocab_size), plan.sampler)
        own.append(int(draft_token(q, key_of(plan, sequence, y[:i]))))
    return own


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rows_equal_plain_decoding(sampler):
    pair, prompts, plan = tiny_pair(), tiny_prompts(4), plan_of(SAMPLERS[sampler], mix=0.5)
    shard = record_shard(pair, prompts, 0, plan)
    rows, differ = shard.mixed, 0
    assert set(rows) == {*schema.MIXED.names, "state"}
    for key in ("sequence", "position"):
        np.testing.assert_array_equal(rows[key], shard.positions[key])
    columns = texts(rows, "token"), texts(rows, "from_draft"), shard.sequences["output_tokens"]
    for s, (z, chosen, y) in enumerate(zip(*columns, strict=True)):
        prompt = prompts[s].tokens
        own = proposals(pair, plan, s, prompt, y)
        coins = [float(draws.uniform(key_of(plan, s, y[:i]), draws.MIXING)) for i in range(len(y))]
        assert chosen == [
            coin < 0.5 and token != EOS for coin, token in zip(coins, own, strict=True)
        ]
        assert z == [own[i] if chosen[i] else y[i] for i in range(len(y))]
        first = np.flatnonzero(rows["sequence"] == s)[0]
        for i in range(len(y)):
            assert_row(rows, first + i, one_position(pair, plan, s, prompt, z[:i]))
        differ += z != y
    assert differ >= 2


def test_states_are_what_q_was_computed_from():
    pair = tiny_pair()
    rows = shard_of().mixed
    assert rows["state"].dtype == np.float16
    logits = pair.draft.get_output_embeddings()(torch.tensor(rows["state"]).double())
    entropy = draft_statistics(draft_rows(logits, SAMPLERS["t1"]), logits.argmax(-1))
    np.testing.assert_allclose(entropy["draft_entropy"].detach(), rows["draft_entropy"], atol=0.05)


@pytest.mark.parametrize("sampler", ["greedy", "t1"])
def test_all_from_the_draft_are_the_proposals_of_the_path(sampler):
    shard = shard_of(sampler, mix=1)
    proposed, chosen = shard.positions["draft_token"], shard.mixed["from_draft"]
    np.testing.assert_array_equal(chosen, proposed != EOS)
    np.testing.assert_array_equal(shard.mixed["token"][chosen], proposed[chosen])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_none_from_the_draft_is_the_path(sampler):
    shard = shard_of(sampler, mix=TINY)
    assert not shard.mixed["from_draft"].any()
    np.testing.assert_array_equal(shard.mixed["token"], shard.positions["target_token"])
    for name in set(shard.mixed) & set(shard.positions):
        np.testing.assert_allclose(shard.mixed[name], shard.positions[name], atol=1e-6)


def test_the_share_from_the_draft():
    for mix in (0.2, 0.5):
        rows = shard_of("greedy", mix, n=40, eos_token_ids=(), max_new_tokens=30).mixed
        n = len(rows["token"])
        assert n == 1200
        assert abs(rows["from_draft"].mean() - mix) < 4 * (mix * (1 - mix) / n) ** 0.5


def test_other_rows_do_not_change():
    plain, mixed = shard_of(mix=0, hidden=True), shard_of(hidden=True)
    assert plain.mixed is None
    for name in ("positions", "branches", "hidden"):
        for column, values in getattr(plain, name).items():
            np.testing.assert_array_equal(values, getattr(mixed, name)[column])
    assert shard_of().hidden is None


def test_passes_and_batches_do_not_matter(monkeypatch):
    whole = shard_of(n=4).mixed
    monkeypatch.setattr("traces.record.mixed._MOST_LOGITS", 2 * 61 * 5)
    pair, prompts, plan = tiny_pair(), tiny_prompts(4), plan_of(SAMPLERS["t1"], mix=0.5)
    parts = [record_shard(pair, prompts[k : k + 2], k, plan).mixed for k in (0, 2)]
    for name, values in whole.items():
        found = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(values, found, atol=1e-3 if name == "state" else 1e-6)


@pytest.mark.parametrize("mix", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_share_out_of_range_is_refused(mix, tmp_path, capsys):
    with pytest.raises(RecordError, match="mix must be a share from 0 to 1, not "):
        plan_of(SAMPLERS["t1"], mix=mix)
    options = ["--target", "t", "--draft", "d", "--prompts", "p", "--out", str(tmp_path / "t")]
    said = "mix must be a share" if np.isfinite(mix) else "--mix must be a finite number"
    assert refused(capsys, "record", *options, f"--mix={mix}").startswith(f"simkit: {said}")
    assert not (tmp_path / "t").exists()


def write(folder, n=5, mix=0.5, cut_after=None, **more):
    """Record n prompts, two a shard, and stop after a shard as an interrupt does."""
    plan = plan_of(SAMPLERS["t1"], mix=mix, batch_size=2)
    header = Manifest(
        max_draft=plan.max_draft,
        max_new_tokens=plan.max_new_tokens,
        sampler=plan.sampler,
        seed=plan.seed,
        batch_size=2,
        n_prompts=n,
        eos_token_ids=plan.eos_token_ids,
        mix=mix,
    )

    def on_shard(done):
        if done == cut_after:
            raise KeyboardInterrupt

    record(tiny_pair(), tiny_prompts(n), folder, plan, header, on_shard=on_shard, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed") / "whole"
    write(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "t")


def test_reading_back(whole):
    assert validate(whole) == []
    trace = traces.load(whole)
    parts = [
        record_shard(tiny_pair(), tiny_prompts(5)[k : k + 2], k, plan_of(SAMPLERS["t1"], mix=0.5))
        for k in (0, 2, 4)
    ]
    for name in (*schema.MIXED.names, "state"):
        assert trace.has("mixed", name)
        expected = np.concatenate([part.mixed[name] for part in parts])
        found = trace.column("mixed", name)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype and not found.flags.writeable
    assert not trace.has("hidden", "state") and not trace.has("mixed", "depth")
    facts = describe(trace)
    assert (facts["mixed_rows"], facts["mix"]) == (trace.n_positions, 0.5)
    use = f"the acceptance head on {trace.n_positions} mixed contexts (0.5 of the tokens the draft"
    assert any(use in line for line in facts["uses"])


def test_a_recording_that_was_cut_ends_in_the_same_bytes(whole, tmp_path):
    write(tmp_path / "again")
    assert hashes(tmp_path / "again") == hashes(whole)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "t", cut_after=2)
    assert (tmp_path / "t" / "mixed" / "00000.parquet").exists()
    (tmp_path / "t" / SHARD).write_bytes(b"left over")
    with pytest.raises(TraceError, match=r"holds another trace: mix is 0\.5 there, 0\.25 here"):
        write(tmp_path / "t", mix=0.25, resume=True)
    write(tmp_path / "t", resume=True)
    assert hashes(tmp_path / "t") == hashes(whole)


def test_a_manifest_without_mixed_rows_is_what_it_was(whole, tmp_path):
    write(tmp_path / "plain", mix=0.0)
    plain = read_manifest(tmp_path / "plain")
    assert '"mix"' not in plain.to_json() and plain.mix == 0
    assert not traces.load(tmp_path / "plain").has("mixed", "state")
    assert plain.content_hash() != replace(plain, mix=0.5).content_hash()
    assert read_manifest(whole).mix == 0.5
    with pytest.raises(TraceError, match=r"mix must be from 0 to 1, not 1\.5"):
        replace(plain, mix=1.5)


@pytest.mark.parametrize("name", bundled())
def test_the_hash_of_a_bundled_trace_is_that_of_its_manifest_as_it_is(name):
    trace = traces.load(name)
    content = json.loads((trace.path / MANIFEST).read_text())
    content["files"] = {n: i for n, i in content["files"].items() if n.split("/")[0] not in ADDED}
    assert "mix" not in content
    del content["manifest_sha256"]  # signs the text, scores and times included
    assert trace.hash == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def test_the_command(tmp_path, capsys):
    models, prompts = REFERENCE / "models", tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Question: 2"}\n{"prompt": "def f("}\n')
    options = ["--target", models / "target", "--draft", models / "draft", "--mix", "1"]
    options += ["--prompts", prompts, "--out", tmp_path / "t", "--max-new-tokens", "6"]
    assert status("record", *options, "--device", "cpu") == 0
    assert validate(tmp_path / "t") == []
    trace = traces.load(tmp_path / "t")
    assert trace.column("mixed", "state").shape == (trace.n_positions, 96)
    out = run(capsys, "info", tmp_path / "t")[1]
    assert "mixed contexts (1 of the tokens the draft's)" in " ".join(out.split())


def test_rows_that_do_not_go_with_the_header(tmp_path):
    plan = plan_of(SAMPLERS["t1"], batch_size=2)
    header = Manifest(
        plan.max_draft, plan.max_new_tokens, batch_size=2, n_prompts=2, mix=0.5, seed=plan.seed
    )
    with pytest.raises(ValueError, match="mixed rows do not go with the header"):
        record(tiny_pair(), tiny_prompts(2), tmp_path / "t", plan, header)


def states(table, change):
    """The table with its states changed."""
    kind = table.schema.field("state").type
    old = table["state"].combine_chunks().flatten().to_numpy().reshape(-1, kind.list_size)
    new = np.ascontiguousarray(change(old.copy()))
    field = schema.with_state("mixed", new.shape[1]).field("state")
    values = pa.FixedSizeListArray.from_arrays(pa.array(new.reshape(-1)), type=field.type)
    return table.set_column(table.schema.names.index("state"), field, values)


def with_nan(state):
    state[3, 2] = np.nan
    return state


def row_where(table, column, value):
    return table[column].to_pylist().index(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.slice(1), "rows, its shard has"),
        (lambda t: with_value(t, "position", 2, 9), "position 9: the key does not follow"),
        (lambda t: with_value(t, "sequence", 0, 3), "sequence 3, position 1: the key does not"),
        (lambda t: with_value(t, "token", row_where(t, "from_draft", False), 60), "is not the out"),
        (lambda t: with_value(t, "token", row_where(t, "from_draft", True), EOS), "an EOS token"),
        (lambda t: with_value(t, "token", row_where(t, "from_draft", True), 60), "not the draft's"),
        (lambda t: with_value(t, "token", row_where(t, "from_draft", True), -1), "token is -1"),
        (lambda t: with_value(t, "accept_prob", 1, 1.5), "accept_prob is 1.5"),
        (lambda t: with_value(t, "accept_prob", 1, np.nan), "accept_prob is nan"),
        (lambda t: with_value(t, "draft_entropy", 1, -1), "draft_entropy is -1"),
        (lambda t: with_value(t, "draft_token", row_where(t, "accepted", True), 60), "accepted, b"),
        (lambda t: states(t, with_nan), "position 4: a state is not finite"),
        (lambda t: states(t, lambda s: s[:, :8]), "column state is fixed_size_list"),
        (lambda t: t.drop_columns("state"), "column state is missing"),
        (lambda t: t.drop_columns("from_draft"), "column from_draft is missing"),
    ],
)
def test_validation(folder, change, message):
    rewrite(folder, SHARD, change)
    problems = validate(folder)
    assert any(p.startswith(f"{folder / SHARD}: ") and message in p for p in problems), problems


def test_validation_of_files(folder):
    listed = dict(read_manifest(folder).files)
    del listed[SHARD]
    edit(folder, files=listed)
    assert sorted(validate(folder)) == [
        f"{folder / SHARD}: not listed in the manifest",
        f"{folder / SHARD}: the manifest does not list it",
    ]
    assert pq.read_table(folder / SHARD).schema.names == [*schema.MIXED.names, "state"]
