"""The proof at load: which models packed passes read rightly, and up to what length."""

import random
import warnings

import numpy as np
import pytest
import torch
from models import EOS, tiny_pair, tiny_prompts
from tiny_models import tiny_model

from traces.errors import RecordError
from traces.record import forward, proof
from traces.record.header import model_shape
from traces.record.pair import Alone, Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof import context_len, named_lengths, prove
from traces.record.recorder import check_lengths
from traces.record.shard import record_shard

# Model, what it is refused for; all of them gave an exit status of 0 or a traceback.
REFUSED = {
    "mpt": "branches side by side differ from its own forward pass from text position",
    "gpt_neo": "layers of type global, local",
    "rwkv": "keeps a state of all that it has read",
    "bert": "the recorder needs a causal model",
    "roberta": "the recorder needs a causal model",
    "roberta-decoder": "prompts of several lengths in one batch differ",  # positions begin at 2
    "xlnet": "the recorder needs a causal model",
    "bloom": "does not take the recorder's masks and cache",
    "falcon-alibi": "does not take the recorder's masks and cache",
    "openai-gpt": "does not take the recorder's masks and cache",
    "xlstm": "does not take the recorder's masks and cache",
    "whisper": "does not take the recorder's masks and cache: it ignores logits_to_keep",
    "bart": "its forward pass takes no position_ids",
}
# What would be recorded wrongly past its windows, if these were not heeded.
WINDOWS = {
    "mistral": "sliding_window=8",
    "mixtral": "sliding_window=8",
    "phimoe": "sliding_window=8",
    "starcoder2": "sliding_window=8",
    "qwen3_moe": "sliding_window=8",
    "ministral3": "sliding_window=8",
    "doge": "sliding_window=8",
    "phi3-window": "sliding_window=8",
    "gemma2": "sliding_window=8",
    "gemma3": "sliding_window=8",
    "gemma3n": "sliding_window=8",
}
# What is recorded up to a length that its configuration names, and not beyond.
UP_TO = {
    "phi3": "original_max_position_embeddings=16",
}
RECORDED = ("llama", "qwen2", "gpt2")
DTYPES = (torch.float32, torch.bfloat16)


def refusal(model, *reach):
    """The one line that a model is refused with."""
    with pytest.raises(RecordError) as error:
        prove(model, *reach)
    line = str(error.value)
    assert "\n" not in line and "cannot be recorded: " in line
    assert line.startswith(f"{model.config.model_type} ({type(model).__name__}) ")
    return line


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_load(name, dtype):
    said = refusal(tiny_model(name, dtype))
    assert REFUSED[name] in said and "Error" not in said and "unpack" not in said


@pytest.fixture
def blind(monkeypatch):
    """No layer's window is heeded."""
    monkeypatch.setattr(forward, "reaches", lambda config: {})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_heeded(name, dtype):
    prove(tiny_model(name, dtype), 36, 200)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_are_not_heeded_are_found(name, dtype, blind):
    """Up to the window all is well; past it the proof names the window."""
    up_to_a_length(tiny_model(name, dtype), WINDOWS[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_set_of_rotary_factors_is_recorded_at_any_length(dtype):
    """As docs/models.md has it: the long factors stand for the short ones too."""
    rope = tiny_model("phi3").config.rope_parameters
    rope = {**rope, "short_factor": rope["long_factor"]}
    prove(tiny_model("phi3", dtype, rope_parameters=rope), 60, 100)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UP_TO)
def test_recorded_up_to_a_length(name, dtype):
    up_to_a_length(tiny_model(name, dtype), UP_TO[name])


def up_to_a_length(model, named):
    length = int(named.rpartition("=")[2])
    prove(model)
    prove(model, length, 200)
    line = refusal(model, 36, 200)
    assert line.endswith(f": texts or caches go past {named}")
    if model.config.model_type == "mistral":
        assert "from text position 9 on" in line


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES, torch.float16], ids=str)
@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name, dtype):
    prove(tiny_model(name, dtype), 200, 400)


@pytest.mark.parametrize("name", ["mistral", "gemma2", "mixtral"])
def test_a_window_that_no_text_reaches_is_recorded(name, blind):
    prove(tiny_model(name, sliding_window=128), 60, 100)


def test_generate_must_agree(blind):
    """Moshi's cache has a window that its own mask has not."""
    model = tiny_model("moshi")
    known = model.generation_config
    prove(model, 8)
    assert "the rows of its own generate differ" in refusal(model, 30)
    assert model.generation_config is known


def test_slots_count_where_a_window_counts_them():
    """Texts of 40 tokens stay within a window of 64, but their branches stand 160 slots behind."""
    model = tiny_model("gpt_neo", window_size=64)
    prove(model, 40, 60)
    assert "window_size=64" in refusal(model, 40, 200)
    pair = Pair(tiny_model("llama"), model, None, 64, ())
    prompts = [Prompt(str(n), "a", None, [1, 2, 3, n]) for n in range(4, 9)]
    plan = Plan(max_new_tokens=24, max_draft=16)
    for run in (
        lambda: check_lengths(pair, prompts, plan),
        lambda: record_shard(pair, prompts, 0, plan),
    ):
        with pytest.raises(RecordError, match="window_size=64"):
            run()


def test_names_do_not_matter():
    """A window that no known field names is found, at load or past the number that names it."""

    def narrow(width):
        model = tiny_model("llama")
        model.config.span = width
        inner = model.model.forward

        def forward(*args, attention_mask=None, **kwargs):
            if attention_mask is None:  # the model's own mask has a window
                n = kwargs["input_ids"].shape[1]
                away = torch.arange(n)[:, None] - torch.arange(n)
                own = torch.zeros(n, n).masked_fill((away < 0) | (away >= width), -1e30)
                attention_mask = own[None, None]
            return inner(*args, attention_mask=attention_mask, **kwargs)

        model.model.forward = forward
        return model

    assert "differ from its own forward pass from text position 6" in refusal(narrow(5))
    model = narrow(40)
    prove(model, 40)
    assert "from text position 41 on: texts or caches go past span=40" in refusal(model, 60)


# The smallest recordings, through the recorder itself.
SMALLEST = {
    "mistral": ([4], "text position 9 on: texts or caches go past sliding_window=8"),
    "phi3": ([4, 20], "original_max_position_embeddings=16"),
    "mpt": ([4, 6], "branches side by side differ"),
    "gpt_neo": ([4, 6], "branches side by side differ"),
    "rwkv": ([4], "keeps a state"),
    "bert": ([4], "a causal model"),
}


@pytest.mark.parametrize("place", ["target", "draft", "alone"])
@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_recordings(name, place, blind):
    lengths, message = SMALLEST[name]
    two = [tiny_model(name), tiny_model("llama")]
    made = {"alone": (Alone, two[:1]), "target": (Pair, two), "draft": (Pair, two[::-1])}
    kind, models = made[place]
    pair = kind(*models, None, 64, ())
    prompts = [Prompt(str(n), "a", None, list(range(1, n + 1))) for n in lengths]
    plan = Plan(max_new_tokens=32, max_draft=4)
    for run in (lambda: check_lengths(pair, prompts, plan),) * 2 + (
        lambda: record_shard(pair, prompts, 0, plan),
    ):
        with pytest.raises(RecordError, match="cannot be recorded") as error:
            run()
        assert message in str(error.value)


def test_short_texts_of_a_model_with_a_window_are_recorded():
    """As Mistral-7B-v0.1, of window 4096, on texts of some hundred tokens."""
    pair = Pair(*(tiny_model("mistral", seed=s, sliding_window=64) for s in (0, 1)), None, 64, ())
    prompts = [Prompt("0", "a", None, [1, 2, 3, 4])]
    plan = Plan(max_new_tokens=12, max_draft=4)
    check_lengths(pair, prompts, plan)
    assert len(record_shard(pair, prompts, 0, plan).positions["target_token"]) == 12


def test_recorded_bytes_do_not_depend_on_the_proof(monkeypatch):
    plan = Plan(max_new_tokens=12, max_draft=4, eos_token_ids=(EOS,), hidden=True)
    prompts = tiny_prompts(3)
    shard = record_shard(tiny_pair(), prompts, 0, plan)
    monkeypatch.setattr(proof, "_try", lambda *given: None)
    bare = record_shard(tiny_pair(), prompts, 0, plan)
    for mine, other in ((shard.positions, bare.positions), (shard.branches, bare.branches)):
        assert all(mine[name].tobytes() == other[name].tobytes() for name in mine)


def _numpy_state():
    return np.random.get_state()[1].tolist()  # noqa: NPY002


def test_nothing_is_changed():
    """Frequencies of the last pass, modes, attributes and random numbers are as they were."""
    model = tiny_model("phi3").train()
    ids = torch.arange(1, 30)[None]
    model(input_ids=ids)  # the long factors now
    buffers = {name: (b, b.clone()) for name, b in model.named_buffers()}
    weights = {name: w.clone() for name, w in model.named_parameters()}
    attributes = [sorted(vars(module)) for module in model.modules()]
    states = torch.get_rng_state(), random.getstate(), _numpy_state()
    filters = list(warnings.filters)
    prove(model, 16, 20)
    assert model.training and warnings.filters == filters
    assert attributes == [sorted(vars(module)) for module in model.modules()]
    for name, buffer in model.named_buffers():
        assert buffer is buffers[name][0] and torch.equal(buffer, buffers[name][1])
    assert all(torch.equal(w, weights[name]) for name, w in model.named_parameters())
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert states[2] == _numpy_state()


def test_once_for_each_model(monkeypatch):
    tried = []
    real = proof._try
    monkeypatch.setattr(
        proof, "_try", lambda model, shape: (tried.append(shape), real(model, shape))
    )
    model = tiny_model("mistral", sliding_window=64)
    for reach in ((), (60, 64), (60, 64), (), (50, 50)):
        prove(model, *reach)
    assert len(tried) == 1
    prove(tiny_model("llama"))
    assert len(tried) == 2


def test_not_a_number_is_left_to_the_recording():
    """It says where; see test_bad_input."""
    model = tiny_model("llama")
    model.model.norm.weight.data[0] = float("nan")
    prove(model, 60)


def test_memory_that_runs_out_is_no_refusal(monkeypatch):
    model = tiny_model("llama")

    def full(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(model, "forward", full)
    with pytest.raises(RuntimeError, match="can't allocate"):
        prove(model)


def test_named_lengths():
    names = {n for found in named_lengths(tiny_model("mistral").config).values() for n in found}
    assert names == {"sliding_window"}
    assert named_lengths(tiny_model("phi3").config)[16] == ["original_max_position_embeddings"]
    assert named_lengths(tiny_model("llama").config) == {}


@pytest.mark.parametrize("name", ["xlnet", "bloom", "mpt"])
def test_a_context_that_is_not_named_is_no_limit(name):
    """XLNet gives -1, others nothing or None."""
    config = tiny_model(name).config
    assert context_len(config) == 2**31
    assert "max_position_embeddings" not in model_shape(config)
