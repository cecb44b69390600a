"""The reference pair as it ships, and the scripts that made it."""

import json
from collections import Counter
from pathlib import Path

import pytest

import traces
from traces.recipes.reference import arithmetic, corpus, sources, texts

FOLDER = Path(traces.__file__).parent / "reference"
MODELS = FOLDER / "models"


@pytest.fixture(scope="module")
def prompts():
    lines = (FOLDER / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_enough_prompts_with_unique_ids(prompts):
    counts = Counter(row["task"] for row in prompts)
    assert set(counts) == set(sources.TASKS)
    assert min(counts.values()) >= 64
    assert len({row["id"] for row in prompts}) == len(prompts)
    assert len({row["prompt"] for row in prompts}) == len(prompts)


def test_prompt_lengths_in_tokens(prompts):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))
    for row in prompts:
        assert 40 <= len(tokenizer.encode(row["prompt"]).ids) <= 200, row["id"]


def test_prompts_are_held_out_and_name_their_licence(prompts):
    licences = {s.package: s.licence for s in sources.SOURCES}
    licences["traces.reference.arithmetic"] = "Apache-2.0"
    for row in prompts:
        name = row["prompt"] if row["task"] == "math" else row["document"]
        assert corpus.is_held_out(name), row["id"]
        assert row["licence"] == licences[row["source"]]


def test_arithmetic_prompts_are_no_training_problems(prompts):
    docs = list(corpus.math_documents(2000))
    corpus.check_disjoint(docs)
    training = {d["document"] for d in docs if not d["held_out"]}
    assert not training & {row["prompt"] for row in prompts}


def test_sizes_and_parameter_counts():
    files = [p for p in FOLDER.rglob("*") if p.is_file() and p.suffix in (".safetensors", ".json")]
    drafters = [p for p in files if p.parent.name in ("pard", "pard2", "eagle")]
    assert sum(p.stat().st_size for p in drafters) <= 6_000_000
    assert sum(p.stat().st_size for p in files if p not in drafters) <= 20_000_000
    record = json.loads((MODELS / "training.json").read_text())
    for name, low, high in (("target", 6e6, 9e6), ("draft", 0.3e6, 0.7e6)):
        with open(MODELS / name / "model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__")
        count = 0
        for tensor in header.values():
            assert tensor["dtype"] == "BF16"
            size = 1
            for n in tensor["shape"]:
                size *= n
            count += size
        assert low <= count <= high
        assert count == record[name]["parameters"]


def test_one_tokenizer_for_both_models():
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (MODELS / "target" / file).read_bytes() == (MODELS / "draft" / file).read_bytes()
    vocabulary = json.loads((MODELS / "target" / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == 4096
    assert vocabulary["<|endoftext|>"] == 0


def test_arithmetic_is_a_function_of_the_seed():
    first, again = list(arithmetic.problems(50, 3)), list(arithmetic.problems(50, 3))
    assert first == again
    assert first != list(arithmetic.problems(50, 4))
    # python -c "from traces.recipes.reference.arithmetic import problem; print(problem(3))"
    assert arithmetic.problem(3) == (
        "Question: Henry has 15 seeds. With some help, the number of seeds grows to "
        "three times what it was. Henry uses 20 seeds for a project. Henry packs the "
        "seeds into 5 equal bags and keeps only one bag. A year later, Henry has three "
        "times as many seeds as before. How many seeds are left in the end?\n"
        "Answer:",
        "\n"
        "At the start there are 15 seeds.\n"
        "The number grows to three times as many: 15 * 3 = 45.\n"
        "Henry gives up 20: 45 - 20 = 25.\n"
        "One of 5 equal parts is 25 / 5 = 5.\n"
        "The number grows to three times as many: 5 * 3 = 15.\n"
        "The answer is 15.",
    )


def test_worked_answers_are_right():
    for question, answer in arithmetic.problems(300, 7):
        assert question.startswith("Question: ") and question.endswith("\nAnswer:")
        lines = answer.strip().splitlines()
        total = lines[0].split()[5]
        for line in lines[1:-1]:
            for part in line.rstrip(".").split(". "):
                left, right = part.split(" = ")
                a, sign, b = left.split()[-3:]
                value = {
                    "+": int(a) + int(b),
                    "-": int(a) - int(b),
                    "*": int(a) * int(b),
                    "/": int(a) / int(b),
                }[sign]
                assert value == int(right)
                total = right
        assert lines[-1] == f"The answer is {total}."


def _document(name, text, held_out):
    return {"document": name, "text": text, "held_out": held_out, "task": "prose", "source": "s"}


def test_near_copies_of_training_text_are_dropped():
    words = [f"word{i}" for i in range(60)]
    training = _document("a", " ".join(words), False)
    copy = _document("b", " ".join(words[:50]), True)
    own = _document("c", " ".join(reversed(words)), True)
    assert corpus.without_near_copies([training, copy, own]) == [training, own]


def test_repeats_and_page_furniture_are_dropped():
    docs = [
        _document(str(i), f"Copyright of the whole manual\n{'text ' * 100}{i}", False)
        for i in range(30)
    ]
    docs.append(_document("again", docs[0]["text"], False))
    kept = list(corpus.without_boilerplate(docs))
    assert [d["document"] for d in kept] == [str(i) for i in range(30)]
    assert all("Copyright" not in str(d["text"]) for d in kept)


def test_a_document_on_the_wrong_side_is_refused():
    doc = _document("x", "", not corpus.is_held_out("x"))
    with pytest.raises(ValueError, match="two sides"):
        corpus.check_disjoint([doc])


def test_html_becomes_lines_without_navigation():
    page = (
        "<html><head><title>T</title></head><body><nav>menu</nav><h1>Head</h1>"
        "<p>One <b>bold</b>\n word.</p><pre>a\n  b</pre><div class='footer'>x</div></body>"
    )
    assert texts.html_text(page) == "Head\nOne bold word.\na\n  b"


def test_learning_rate_warms_up_and_ends_low():
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from traces.recipes.training.optimiser import rate

    assert rate(0, 1000, 1.0) == pytest.approx(1 / 101)
    assert rate(101, 1000, 1.0) == pytest.approx(1.0)
    assert rate(1000, 1000, 1.0) == pytest.approx(0.01)


def test_loop_detector():
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from traces.recipes.reference.evaluate import loops

    assert loops([*range(50), *([1, 2, 3] * 30)])
    assert not loops(list(range(100)))
    assert not loops([1] * 10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_pair_loads_and_our_net_computes_what_transformers_computes():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from traces.recipes.reference.net import SHAPES, load_weights

    ids = torch.arange(2, 98).reshape(2, 48)
    for name, shape in SHAPES.items():
        tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            MODELS / name, dtype=torch.float32
        ).eval()
        assert model.num_parameters() == shape.parameters
        assert tokenizer.eos_token_id == model.generation_config.eos_token_id == 0
        assert tokenizer.decode(tokenizer("größer x = 12\n")["input_ids"]) == "größer x = 12\n"
        with torch.no_grad():
            ours = load_weights(name, MODELS / name / "model.safetensors")(ids)
            theirs = model(ids).logits
        assert torch.allclose(ours, theirs, atol=1e-3)


@pytest.mark.slow
def test_training_exports_and_resumes(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    numpy = pytest.importorskip("numpy")
    from traces.recipes.reference import net, train
    from traces.recipes.reference.windows import Windows

    monkeypatch.setitem(net.SHAPES, "draft", net.Shape(hidden=16, layers=1, heads=2, ffn=32))
    rng = numpy.random.default_rng(0)
    arrays = {}
    for task in sources.TASKS:
        arrays[f"{task}_train"] = rng.integers(0, 4096, 500).astype(numpy.uint16)
        arrays[f"{task}_train_starts"] = numpy.array([0, 100, 499])
    numpy.savez(tmp_path / "tokens.npz", **arrays)
    windows = Windows(tmp_path / "tokens.npz", 32, "cpu")
    assert torch.equal(windows.batch(1, 2, 4), windows.batch(1, 2, 4))

    def fit(work, stop=None):
        run = train.TrainingRun(work, work, "cpu", False, 4, 32, 1)
        start = net.Llama(net.SHAPES["draft"]).initialise(1)
        monkeypatch.setattr(train, "CHECKPOINT_STEPS", stop or 500)
        return train.optimise(run, "draft", start, train.next_token_loss(run), windows, 6, 0)[0]

    whole = fit(tmp_path / "whole").state_dict()
    calls = []

    def stop_after_four(run, *rest, update=train.update):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return update(run, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", stop_after_four)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "parts", stop=2)
    resumed = fit(tmp_path / "parts").state_dict()
    assert all(torch.equal(whole[k], resumed[k]) for k in whole)
