"""Spans: what positions are part of, against a plain walk over tokens; replays by span."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_folders import pair_folder

import simkit
import traces
from traces import TraceError, spans
from traces.record.pair import load_tokenizer
from traces.spans import ECHO, REST, SpanRule, read_rules
from traces.subset import select
from traces.writer import save

RULES = """
[[span]]
name = "thinking"
begin = "w{begin}"
end = "w{end}"

[[span]]
name = "pair"
pattern = "w6w4"
"""


class Words:
    """Token k reads "wk" and no more."""

    def decode(self, tokens, **given):
        return "".join(f"w{k}" for k in tokens)


def walked(prompt, output, begin, end):
    """Whether each output token lies behind `begin`, up to `end`, by a walk over the tokens."""
    inside, found = False, []
    for token in [*prompt, *output]:
        found.append(inside)
        if inside and token == end:
            inside = False
        elif not inside and token == begin:
            inside = True
    return found[len(prompt) :]


tokens = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(tokens, tokens)
@settings(max_examples=200, deadline=None)
def test_markers_are_walked(prompt, output):
    rules = [SpanRule("thinking", "w5", "w8"), SpanRule("code", "w7", "w9")]
    labels = spans._labels(prompt, output, spans._Pieces(Words()), rules)
    first = walked(prompt, output, 5, 8)
    second = walked(prompt, output, 7, 9)
    for label, thinks, codes in zip(labels, first, second, strict=True):
        wanted = "thinking" if thinks else "code" if codes else None
        assert label == wanted if wanted else label in (REST, ECHO)


@given(tokens, tokens, st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_whoever_has_read_the_tokens_before_knows_the_span(prompt, output, cut):
    """What comes at a position and behind it does not matter, but for echoes and patterns."""
    rules = [SpanRule("thinking", "w5w6", "w8"), SpanRule("code", "w7", "w9w9")]
    cut = min(cut, len(output))
    pieces = spans._Pieces(Words())
    kinds = {"thinking", "code"}
    whole = spans._labels(prompt, output, pieces, rules)[:cut]
    other = spans._labels(prompt, [*output[: cut - 1], 1], pieces, rules)
    assert [k if k in kinds else REST for k in whole] == [k if k in kinds else REST for k in other]


rules = st.lists(
    st.sampled_from(
        [
            SpanRule("thinking", "w5", "w8"),
            SpanRule("code", "w7", "w9"),
            SpanRule("code", pattern="w5w[1-4]"),
            SpanRule("pair", pattern="w7.*w2"),
        ]
    ),
    min_size=1,
    max_size=4,
)


@given(tokens, tokens, st.integers(1, 30), rules)
@settings(max_examples=400, deadline=None)
def test_what_policies_read_does_not_depend_on_what_comes(prompt, output, cut, rules):
    """Rules in any order: a pattern, known later, takes positions from the markers behind it."""
    cut, pieces, causal = min(cut, len(output)), spans._Pieces(Words()), spans._causal(rules)
    whole = spans._labels(prompt, output, pieces, rules)[:cut]
    other = spans._labels(prompt, [*output[: cut - 1], 1], pieces, rules)
    assert [k in causal and k for k in whole] == [k in causal and k for k in other]
    assert causal <= {rule.name for rule in rules if not rule.pattern}


def test_spaces_that_a_tokenizer_drops_at_a_texts_begin_are_read():
    """As those of SentencePiece models do; an empty token in a span that goes on is in it."""

    class Stripping:
        def decode(self, tokens, **given):
            return "".join(
                {1: " -", 2: " a", 3: " ", 4: "<b>", 5: ""}[k] for k in tokens
            ).removeprefix(" ")

    pieces = spans._Pieces(Stripping())
    assert pieces([1, 2, 3, 4, 5]) == [" -", " a", " ", "<b>", ""]
    labels = spans._labels([1], [1, 2, 1], pieces, [SpanRule("list", pattern="- a")])
    assert labels == ["list", "list", REST]
    labels = spans._labels([1], [4, 2, 5], pieces, [SpanRule("bold", "<b>", "</b>")])
    assert labels == [REST, "bold", "bold"]


def test_echoes_are_runs_that_stand_in_the_prompt():
    prompt = list(range(1, 30))
    output = [40, *range(5, 15), 41, *range(5, 12)]  # of ten, and of seven
    labels = spans._labels(prompt, output, spans._Pieces(Words()), [])
    assert [k for k, label in enumerate(labels) if label == ECHO] == list(range(1, 11))


def test_a_marker_in_the_middle_of_tokens():
    class Odd:
        def decode(self, tokens, **given):
            words = {1: "a<th", 2: "ink>b", 3: "c</", 4: "think>d", 5: "e"}
            return "".join(words[k] for k in tokens)

    rules = [SpanRule("thinking", "<think>", "</think>"), SpanRule("e", pattern="d?e")]
    labels = spans._labels([1], [2, 3, 4, 5], spans._Pieces(Odd()), rules)
    assert labels == [REST, "thinking", "thinking", "e"]


class Folder(type(Path())):
    """A folder, and the tokens that begin and end a span there."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = Folder(pair_folder(tmp_path_factory.mktemp("spans")))
    counts = Counter()
    for row in traces.load(root / "trace").sequences.to_pylist():
        counts.update(t for t in row["output_tokens"] if t > 9 and t not in row["prompt_tokens"])
    root.begin, root.end = (token for token, _ in counts.most_common(2))
    (root / "rules.toml").write_text(RULES.format(begin=root.begin, end=root.end))
    return root


@pytest.fixture
def trace(folder, tmp_path):
    return shutil.copytree(folder / "trace", tmp_path / "trace")


def command(folder, trace, *more):
    given = ["--tokenizer", folder / "target", "--rules", folder / "rules.toml"]
    return ["spans", trace, *given, *more]


def test_the_command_writes_them_and_a_replay_reads_them(folder, trace, capsys):
    before = traces.load(trace).hash
    status, out, _ = run(capsys, *command(folder, trace))
    assert status == 0 and "thinking: " in out and "draft tokens accepted" in out
    there = traces.load(trace)
    assert there.hash == before and run(capsys, "validate", trace)[0] == 0
    found = spans.load(there)
    rows, marks = there.sequences.to_pylist(), (folder.begin, folder.end)
    thinks = [walked(row["prompt_tokens"], row["output_tokens"], *marks) for row in rows]
    mine = found.label == found.names.index("thinking")
    assert mine.any() and np.array_equal(mine, np.concatenate(thinks))
    cost = "linear(draft_s=0.1, target_s=1)"
    by_span = simkit.replay(there, ["fixed(3)", "svip(h=1.0)"], cost, by="span").frame
    steps = simkit.replay(there, ["fixed(3)", "svip(h=1.0)"], cost, by="step").frame
    place = there.position_offsets[steps["sequence"].to_numpy()] + steps["start"].to_numpy() - 1
    kinds = pl.Series("span", [found.names[k] for k in found.label[place]])
    sums = steps.with_columns(kinds).group_by("policy", "span").agg(
        pl.col("accepted", "emitted", "total_s", "baseline_s").sum(), steps=pl.len()
    )  # fmt: skip
    both = by_span.join(sums, on=["policy", "span"], suffix="_own")
    assert len(both) == len(sums)
    for name in ("accepted", "emitted", "steps", "total_s", "baseline_s"):
        assert np.allclose(both[name], both[f"{name}_own"])
    speedups = by_span.filter(pl.col("steps") > 20)
    assert (speedups["speedup_lo"] <= speedups["speedup"]).all()
    out = run(capsys, "replay", trace, "--policy", "fixed(3)", "--by", "span", "--cost", cost)[1]
    assert "thinking" in out and "answer" in out


def test_a_rule_reads_a_span(folder, trace, capsys):
    assert run(capsys, *command(folder, trace))[0] == 0
    there = traces.load(trace)

    @simkit.policy(columns=["span_thinking"])
    def thoughtful(depth, row):
        return depth >= (4 if row.span_thinking else 1)

    rule = thoughtful
    found = simkit.replay(there, [rule, "fixed(4)"], by="span").frame
    mine = found.filter(pl.col("policy") != "fixed(4)").sort("span")
    other = found.filter(pl.col("policy") == "fixed(4)").sort("span")
    at = mine["span"].to_list()
    assert mine["drafted"][at.index("answer")] < other["drafted"][at.index("answer")]
    for later in ("span_pair", "span_answer", "span_prompt_echo"):
        with pytest.raises(TraceError, match=f"cannot know the span {later} .*: span_thinking$"):
            spans.column(there, later)


def test_a_thin_copy_keeps_them(folder, trace, capsys, tmp_path):
    copy = tmp_path / "copy"
    assert run(capsys, *command(folder, trace))[0] == 0
    assert run(capsys, "thin", trace, "--out", copy, "--bits", 8)[0] == 0
    assert run(capsys, "validate", copy)[0] == 0
    ours, theirs = (spans.load(traces.load(one)) for one in (trace, copy))
    assert ours.names == theirs.names and np.array_equal(ours.label, theirs.label)


@pytest.mark.parametrize("budget", [24, 9])
def test_cuts_keep_them(folder, trace, capsys, tmp_path, budget):
    """In memory and written; of outputs that are cut short, what is left of each span."""
    assert run(capsys, *command(folder, trace))[0] == 0
    there = traces.load(trace)
    whole, chosen = spans.load(there), [1, 4, 5, 9]
    cut = select(there, chosen, max_new_tokens=budget)
    begins, ends = there.position_offsets[chosen], there.position_offsets[np.array(chosen) + 1]
    rows = [np.arange(a, min(b, a + budget)) for a, b in zip(begins, ends, strict=True)]
    found = spans.load(cut)
    assert found.names == whole.names and found.causal == whole.causal
    assert np.array_equal(found.label, whole.label[np.concatenate(rows)])
    save(cut, tmp_path / "cut")
    assert run(capsys, "validate", tmp_path / "cut")[0] == 0
    written = spans.load(traces.load(tmp_path / "cut"))
    assert written.names == found.names and np.array_equal(written.label, found.label)
    both = (cut, traces.load(tmp_path / "cut"))
    cost = "linear(draft_s=0.1, target_s=1)"
    ours, theirs = (simkit.replay(t, ["fixed(3)"], cost, by="span").frame for t in both)
    assert ours.equals(theirs)
    assert spans.of_part(traces.load(folder / "trace"), cut) is None


def test_an_attached_drafter_has_those_of_its_recording(folder, trace, capsys):
    assert run(capsys, *command(folder, trace))[0] == 0
    assert run(capsys, "attach", trace, "--drafter", "prompt_lookup()")[0] == 0
    found = simkit.replay(traces.load(trace, "prompt_lookup"), ["fixed(3)"], by="span")
    assert "thinking" in found.frame["span"].to_list()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs [[span]] tables"),
        ("[[span]]\nname = 'a'", "give begin and end, or a pattern"),
        ("[[span]]\nname = 'a'\npattern = '('", "its pattern: missing"),
        ("[[span]]\nname = 'a'\npattern = 'x*'", "matches a text without letters"),
        ("[[span]]\nname = 'answer'\npattern = 'x'", "cannot be named 'answer'"),
        ("[[span]]\nname = 'a'\nbegin = 'x'", "give begin and end"),
        ("[[span]]\nname = 'a'\nbegins = 'x'", "span 1 needs name"),
        ("[[span]]\nname = 1\npattern = 'x'", "texts"),
        ("span = 3", "needs [[span]] tables"),
        (
            "[[span]]\nname = 'a b'\npattern = 'x'\n[[span]]\nname = 'a_b'\npattern = 'x'",
            "spans 'a b' and 'a_b' are one name to a policy",
        ),
    ],
)
def test_bad_rules(tmp_path, text, message):
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(TraceError, match=r"rules\.toml") as error:
        read_rules(tmp_path / "rules.toml")
    assert message in str(error.value)


def test_what_is_refused(folder, trace, capsys, tmp_path):
    given = ["spans", "reference", "--tokenizer", folder / "target"]
    assert "write a copy with simkit thin" in refused(capsys, *given)
    assert "spans are missing" in refused(
        capsys, "replay", trace, "--policy", "fixed(2)", "--by", "span"
    )
    shutil.copytree(folder / "target", tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    words = json.loads(file.read_text())
    words["model"]["vocab"] = {f"v{k}": i for k, i in enumerate(words["model"]["vocab"].values())}
    words["model"]["unk_token"] = "v0"
    words["added_tokens"] = []
    file.write_text(json.dumps(words))
    given = ["spans", trace, "--tokenizer", tmp_path / "other"]
    assert "this is not the tokenizer" in refused(capsys, *given)


def test_those_of_another_trace_do_not_count(folder, trace, capsys):
    table = spans.find(traces.load(trace), load_tokenizer(str(folder / "target")))
    facts = json.loads(table.schema.metadata[b"simkit"]) | {"trace": "0" * 64}
    other = table.replace_schema_metadata({b"simkit": json.dumps(facts)})
    traces.writer.add_file(trace, spans.FILE, other)
    assert "belong to another trace" in run(capsys, "validate", trace)[2]
