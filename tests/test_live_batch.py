"""A batch decodes what its sequences decode alone; they share the length of each draft."""

from importlib import import_module

import pytest
import torch
from commands import refused
from models import EOS, tiny_pair, tiny_prompts
from pair_folders import pair, pair_folder, simkit

from benchmarks.plain_reader import Reader as PlainReader
from simkit import policies
from simkit.errors import LiveError
from simkit.live import DecoderSettings
from simkit.live.decoder import Request
from simkit.live.decoders import BatchDecoder, TimedDecoder
from traces import Sampler
from traces.record.reader import Reader

pytestmark = pytest.mark.usefixtures("one_thread")

EOS_IDS = (EOS, 1, 2)
SPECS = ("fixed(3)", "svip(h=1.2)", "heuristic(initial=4)", "llamacpp(p_min=0.3)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("batch"))


def decoders(policy, family="llama-gqa", stop="all", first_token="draft"):
    pair = tiny_pair(family, noise=0.06)
    settings = DecoderSettings(max_new_tokens=16, eos_token_ids=EOS_IDS, first_token=first_token)
    given = pair.target, pair.draft, policy, settings, pair.vocab_size
    return TimedDecoder(*given), BatchDecoder(*given, stop=stop)


def decoded(batch, prompts, first=0):
    return batch.run([Request(first + k, prompt) for k, prompt in enumerate(prompts)])


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_of_one_takes_the_same_steps(spec):
    alone, batch = decoders(policies.parse(spec))
    for number, prompt in enumerate(tiny_prompts(4, seed=3)):
        expected = alone.decode(prompt.tokens, number)
        steps, outputs, rows, _ = decoded(batch, [prompt.tokens], number)
        assert (steps, outputs) == ([expected.steps], [expected.output])
        kinds = [
            (r.kind, r.step, r.depth, r.tokens_in) for r in rows if r.kind in ("step", "verify")
        ]
        same = [r for r in expected.rows if r.kind in ("step", "verify")]
        assert kinds == [(r.kind, r.step, r.depth, r.tokens_in) for r in same]


@pytest.mark.parametrize("stop", ["all", "any"])
@pytest.mark.parametrize("spec", [*SPECS, None])
@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_outputs_are_those_of_each_sequence_alone(spec, stop, first_token):
    policy = policies.parse(spec) if spec else None
    alone, batch = decoders(policy, stop=stop, first_token=first_token)
    prompts = [prompt.tokens for prompt in tiny_prompts(5, seed=4)]
    steps, outputs, rows, _ = decoded(batch, prompts)
    assert outputs == [alone.decode(prompt, n).output for n, prompt in enumerate(prompts)]
    assert sum(row.tokens_in for row in rows if row.kind == "step") == sum(map(len, outputs))
    assert rows[0].batch_size == 5 and {row.batch_size for row in rows} <= set(range(1, 6))
    assert (rows[-1].kind, rows[-1].batch_size) == ("sequence", 5)
    if spec == "fixed(3)":
        assert {step.drafted for one in steps for step in one} <= {0, 1, 2, 3}


def test_a_draft_pass_is_logged_with_the_tokens_that_it_reads(monkeypatch):
    """Two behind a draft that was accepted whole, as a sequence alone logs them; context is cut."""
    seen = []
    whole = Reader.read

    def read(self, blocks, *more, **options):
        seen.append((self.model, len(blocks[0]), max(self.lengths)))
        return whole(self, blocks, *more, **options)

    monkeypatch.setattr(Reader, "read", read)
    alone, batch = decoders(policies.parse("fixed(3)"))
    widths = []
    for number, prompt in enumerate(tiny_prompts(4, seed=3)):
        expected = [r for r in alone.decode(prompt.tokens, number).rows if r.kind == "draft"]
        rows = [r for r in decoded(batch, [prompt.tokens], number).rows if r.kind == "draft"]
        given = [(r.step, r.depth, r.tokens_in, r.context_len) for r in rows]
        assert given == [(r.step, r.depth, r.tokens_in, r.context_len) for r in expected]
        widths += [row.tokens_in for row in rows]
    assert set(widths) == {1, 2}
    seen.clear()
    rows = decoded(batch, [prompt.tokens for prompt in tiny_prompts(5, seed=4)]).rows
    passes = [(n, had) for model, n, had in seen if model is batch.drafting.draft.model and had]
    assert passes == [(r.tokens_in, r.context_len) for r in rows if r.kind == "draft"]


def test_state_of_a_run_goes_on_in_a_smaller_last_batch():
    _, batch = decoders(policies.parse("heuristic(initial=4, schedule=heuristic)"))
    prompts = [prompt.tokens for prompt in tiny_prompts(3, seed=4)]
    decoded(batch, prompts[:2])
    (n,) = batch.drafting.decider.states[0]
    assert n != 4
    steps = decoded(batch, prompts[2:], 2).steps
    assert steps[0][0].drafted == min(n, 15)


@pytest.mark.parametrize("family", ["qwen3", "gpt-neox"])
def test_other_families(family):
    alone, batch = decoders(policies.parse("fixed(3)"), family)
    prompts = [prompt.tokens for prompt in tiny_prompts(3, seed=5)]
    expected = [alone.decode(prompt, n).output for n, prompt in enumerate(prompts)]
    assert decoded(batch, prompts).outputs == expected


def test_any_stops_no_later_than_all():
    prompts = [prompt.tokens for prompt in tiny_prompts(5, seed=4)]
    lengths = {"all": [], "any": []}
    for stop, found in lengths.items():
        for h in (1.2, 1.6, 2.0):
            _, batch = decoders(policies.parse(f"svip(h={h})"), stop=stop)
            steps = decoded(batch, prompts).steps
            found.append(steps[0][0].drafted)
    pairs = list(zip(lengths["any"], lengths["all"], strict=True))
    assert all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def test_a_sequence_is_drafted_on_behind_its_budget(monkeypatch):
    """While another's rule goes on: models must have positions for that, see `simkit live`."""
    reached, whole = [], Reader.read

    def read(self, blocks, *more, **options):
        logits = whole(self, blocks, *more, **options)
        reached.append(max(self.lengths))
        return logits

    monkeypatch.setattr(Reader, "read", read)
    prompts = [prompt.tokens for prompt in tiny_prompts(5, seed=4)]
    budget = max(map(len, prompts)) + 16
    for stop, more in (("all", 9), ("any", 0)):
        reached.clear()
        _, batch = decoders(policies.parse("fixed(9)"), stop=stop)
        decoded(batch, prompts)
        assert max(reached) <= budget + more
        assert (max(reached) > budget) == (stop == "all")


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (["--batch-size", 2], 66),  # 4 of prompt, 31 new, 31 drafted on
        (["--batch-size", 2, "--policy", "fixed(30)"], 66),
        (["--batch-size", 2, "--stop", "any"], None),
        ([], None),
    ],
)
def test_positions_are_counted_before_anything_is_measured(
    folder, options, needed, monkeypatch, capsys
):
    """Of a pair of 64."""
    import_module("simkit.fidelity.run")  # which would keep what is put in the place of `run`
    monkeypatch.setattr("simkit.live.rotation.run", lambda *given: pytest.fail("measured"))
    command = ["live", *pair(folder), "--prompts", folder / "prompts.jsonl", *options]
    command += ["--policy", "fixed(40, max_draft=40)", "--max-new-tokens", 31]
    if needed is None:
        with pytest.raises(pytest.fail.Exception, match="measured"):
            simkit(command)
    else:
        assert refused(capsys, *command).endswith(
            f"need {needed} positions, but the pair has only 64"
        )


def test_what_is_kept_of_each_text_is_read_on_from():
    pair = tiny_pair()
    several, texts = Reader(pair.target, 61), [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
    several.slots.begin(3)
    for _ in texts:
        several.slots.open()
    several.read(texts, 1)
    several.slots.close(1)  # the last one takes its place
    several.slots.cut([2, 1])
    got = several.read([[20, 21], [22, 23]], 2)
    for row, text in enumerate([[5, 6, 20, 21], [11, 22, 23]]):
        expected = PlainReader(pair.target, 61).read(text, 2)
        assert torch.allclose(got[row], expected, atol=1e-12)


def test_what_a_batch_cannot_do_is_refused():
    pair = tiny_pair()
    given = pair.target, pair.draft
    with pytest.raises(LiveError, match="greedily"):
        BatchDecoder(*given, None, DecoderSettings(Sampler(1.0)), 61)
    with pytest.raises(LiveError, match="all or any"):
        BatchDecoder(*given, None, DecoderSettings(), 61, stop="most")
    with pytest.raises(policies.PolicyError, match="a batch cannot run"):
        BatchDecoder(*given, policies.parse("pacer"), DecoderSettings(), 61)
