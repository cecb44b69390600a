"""Score tables against one (start, depth) at a time, against live scoring, and on disk."""

from pathlib import Path

import heads_traces
import numpy as np
import pytest
import torch
from models import tiny_pair, tiny_prompts

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import files, registry, run, scoring, states
from simkit.heads.drafts import drafts
from simkit.heads.files import Head
from simkit.heads.plain_scorer import PlainScorer
from traces import scores
from traces.arrays import rounded
from traces.thin import thin
from traces.trace import load

MODELS = Path(__file__).parent.parent / "traces"
BUNDLED = [*(MODELS / "reference" / "heads").glob("*.safetensors")]
BUNDLED += (MODELS / "smollm2" / "heads").glob("*.safetensors")


def head_of(kind, trace, width=32, **options):
    torch.manual_seed(0)
    options = registry.get(kind).settle(options)
    module = files.build(kind, width, options).eval()
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    models = {"target_sha256": "0" * 64, "draft_sha256": "0" * 64}
    return Head(kind, width, options, module, {"trained_on": models})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads") / "trace"
    heads_traces.recorded(folder)
    return folder


def test_drafts_run_through_the_rows_that_a_replay_sees(folder):
    trace = load(folder)
    layout, found = PathLayout(trace), states.read(trace)
    read = layout.columns(("draft_entropy",))
    entropy = np.concatenate([read.path[0], read.branches[0]])
    hidden = np.concatenate([found.path, found.branches])
    for sequence in range(trace.n_sequences):
        rows = drafts(layout, found, sequence, max_depth=7)
        one = layout.sequence(read, sequence)
        for start in range(len(rows.index)):
            deep = int(rows.length[start])
            expected = [x for (x,) in one.draft(start + 1, deep)]
            source = rows.source[start, :deep]
            assert entropy[source].tolist() == expected
            assert np.array_equal(rows.rows[rows.index[start, :deep]], hidden[source])
            assert rows.accepted[start].sum() == min(one.ahead[start], 7)
            assert rows.n_prefix[start] == layout.n_prompt[sequence] - 1 + start
        assert (rows.source[~rows.recorded] == -1).all()


@pytest.mark.parametrize("attention", ["full", "local-draft", "local-block"])
def test_a_pass_scores_as_one_start_and_depth_at_a_time(folder, attention):
    trace = load(folder)
    layout, found = PathLayout(trace), states.read(trace)
    head = head_of("pacer", trace, attention=attention)
    table = scoring.score(head, layout, found, 7)
    assert table.values.shape == (trace.n_positions, 7)
    module = head.network().double()
    compared = 0
    for sequence in range(2):
        rows = drafts(layout, found, sequence, 7)
        first = layout.offsets[sequence]
        for start in range(0, len(rows.index), 3):
            assert np.isnan(table.values[first + start, rows.length[start] :]).all()
            for depth in range(1, int(rows.length[start]) + 1):
                text = found.text(sequence)[: rows.n_prefix[start]]
                tokens = rows.rows[rows.index[start, :depth]]
                alone = torch.from_numpy(np.concatenate([text, tokens])).double()
                index = torch.arange(len(text), len(alone))[None]
                logit = module(alone, index, torch.tensor([len(text)]))[0, -1]
                expected = logit.sigmoid().item()
                assert table.values[first + start, depth - 1] == pytest.approx(expected, abs=1e-5)
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("kind", registry.names())
def test_live_scores_are_the_tables(folder, kind):
    """Over the states of a pass of the draft over one text, batch size 1, not the recording's."""
    trace = heads_traces.recorded(folder.parent / f"double-{kind}", dtype=torch.float64)
    layout, found = PathLayout(trace), states.read(trace)
    head = head_of(kind, trace)
    table = scores.attach(trace, "x", scoring.score(head, layout, found, 7))
    table = scores.load(table, "x")
    scorer = PlainScorer(head)
    draft = tiny_pair(dtype=torch.float64).draft
    drafted = np.concatenate([trace.positions("draft_token"), trace.branches("draft_token")])
    same, compared = 0, 0
    for sequence, prompt in enumerate(tiny_prompts(6)):
        output = trace.sequences["output_tokens"][sequence].as_py()
        for start in range(0, len(output), 5):
            rows = drafts(layout, found, sequence, 7)
            tokens = prompt.tokens + output[:start]
            for depth, source in enumerate(rows.source[start, : rows.length[start]].tolist(), 1):
                with torch.inference_mode():
                    hidden = draft.model(torch.tensor([tokens])).last_hidden_state[0]
                live = scorer.score(hidden, len(hidden) - depth)
                judged = rows.source[start, depth - 1 - head.lag]
                if depth > head.lag:  # with a lag, this state has consumed the token before
                    row = layout.offsets[sequence] + start
                    same += live == value(table, row, depth, judged, trace)
                    compared += 1
                tokens = [*tokens, int(drafted[source])]
    assert compared > 100
    assert same >= 0.99 * compared


def value(table, row, depth, source, trace):
    if isinstance(table, scores.StartScores):
        return table.values[row, depth - 1]
    return np.concatenate([table.path, table.branches])[source]


def test_a_lagged_score_stands_at_the_token_that_it_judges(folder):
    """It comes from the state that the token entered: that of the next token of its draft."""
    trace = load(folder)
    layout, found = PathLayout(trace), states.read(trace)
    head = head_of("specdecpp", trace, lag=1)
    table = scoring.score(head, layout, found)
    assert table.lag == 1
    score = np.concatenate([table.path, table.branches])
    hidden = np.concatenate([found.path, found.branches])
    own = scoring.score_rows(head, hidden)
    for sequence in range(trace.n_sequences):
        rows = drafts(layout, found, sequence, 32)
        for source, length in zip(rows.source, rows.length, strict=True):
            draft = source[:length]
            assert np.array_equal(score[draft[:-1]], own[draft[1:]])
    assert np.isnan(score[draft[-1:]]).all()


@pytest.mark.parametrize("kind", registry.names())
def test_the_table_is_written_once(folder, kind):
    head = head_of(kind, load(folder))
    name = run.score(load(folder), head, max_draft=7)
    assert name == registry.get(kind).policy
    file = folder / f"scores/{name}.parquet"
    before = file.stat().st_mtime_ns
    assert run.score(load(folder), head, max_draft=7) is None
    assert file.stat().st_mtime_ns == before
    trace = load(folder)
    layout, found = PathLayout(trace), states.read(trace)
    kept, fresh = scores.load(trace, name), scoring.score(head, layout, found, 7)
    for field in fresh.__dataclass_fields__:
        values = np.asarray(getattr(fresh, field)).astype(np.float16)
        assert np.array_equal(getattr(kept, field), values, equal_nan=True)
    with torch.no_grad():
        next(head.module.parameters()).add_(0.1)
    assert run.score(load(folder), head, max_draft=7) == name
    assert file.stat().st_mtime_ns != before


def test_states_of_the_same_recording_elsewhere(tmp_path):
    with_states = heads_traces.revealing(tmp_path / "with", n=7)
    bare = heads_traces.revealing(tmp_path / "bare", n=7, hidden=False)
    head = head_of("acceptance", bare, width=heads_traces.WIDTH)
    with pytest.raises(HeadError, match="no hidden states: record it with --hidden"):
        run.score(bare, head)
    assert run.score(bare, head, recording=with_states) == "acceptance_head"
    run.score(with_states, head)
    kept = (scores.load(load(x), "acceptance_head") for x in (bare.path, with_states.path))
    a, b = kept
    assert np.array_equal(a.path, b.path, equal_nan=True)
    assert np.array_equal(a.branches, b.branches, equal_nan=True)
    other = heads_traces.revealing(tmp_path / "other", n=7, seed=1)
    with pytest.raises(HeadError, match="do not belong to that trace"):
        run.score(load(bare.path), head, name="x", recording=other)


@pytest.mark.parametrize("kind", registry.names())
def test_scores_of_a_rounded_trace_are_rounded_alike(folder, kind, tmp_path):
    whole = load(folder)
    coarse = load(thin(whole, tmp_path / "thin", bits=5))
    head = head_of(kind, whole)
    name = run.score(coarse, head, recording=whole, max_draft=7)
    kept = scores.load(load(coarse.path), name)
    fresh = scoring.score(head, PathLayout(whole), states.read(whole), 7)
    for field in set(fresh.__dataclass_fields__) - {"lag"}:
        assert np.array_equal(
            getattr(kept, field), rounded(getattr(fresh, field), 5), equal_nan=True
        )
    assert run.score(load(coarse.path), head, recording=whole, max_draft=7) is None


@pytest.mark.parametrize("file", sorted(BUNDLED), ids=lambda f: f"{f.parts[-3]}-{f.stem}")
def test_the_bundled_scores_are_those_of_the_bundled_heads(file):
    """Trained on other prompts of the same pair; traces/recipes/Makefile makes them."""
    head = files.load(file)
    pair = file.parts[-3]
    parts = file.stem.split("-")[1:]  # of the head's name: trees, sampled
    trace = load("-".join([pair, *parts]), "eagle-tree" if "trees" in parts else None)
    files.check_fits(head, trace.manifest, pair)
    assert head.facts["trained_on"]["trace"] != trace.hash
    facts = scores.facts(trace, registry.get(head.kind).policy)
    assert facts is not None and facts["trace"] == trace.hash
    assert facts["head"]["hash"] == head.hash
    scores.load(trace, registry.get(head.kind).policy)
