"""Engines that are run, here by a stand-in: what is compared, and all that goes wrong."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run

import simkit
import traces
from simkit.engines import EngineError
from simkit.engines.run import explained, llama_server, recorded
from simkit.engines.run.compared import compare
from simkit.engines.run.llama_server import CONVENTIONS, answer_of

pytest.importorskip("gguf")

pytestmark = pytest.mark.usefixtures("own_cache")
MODELS = Path(traces.__file__).parent / "reference" / "models"
PAIR = ("--target", MODELS / "target", "--draft", MODELS / "draft")
FAKE = Path(__file__).with_name("fake_llama_server.py")
FEW = ("--n-prompts", 3, "--max-new-tokens", 40, "--threads", 1)


def part(n=3, budget=40, drafter=None):
    return recorded.recorded_part(traces.load("reference", drafter), n, budget)


def said(some, policy):
    """What a server that does what the replay says streams, by prompt."""
    known = {}
    for request in some.requests:
        steps = [[request.output[:1], 0, 0]]
        for step in some.steps(simkit.policies.parse(policy))[request.sequence]:
            tokens = request.output[step.start - 1 : step.start - 1 + step.emitted]
            steps.append([tokens, step.drafted, step.accepted])
        known[",".join(map(str, request.prompt))] = steps
    return known


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A stand-in on the path; gives what sets its answers and its fault."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(llama_server, "find_spec", lambda name: None)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "logs"))

    def setting(answers=None, fault=""):
        file = tmp_path / "answers.json"
        file.write_text(json.dumps(answers or {}))
        monkeypatch.setenv("FAKE_ANSWERS", str(file))
        monkeypatch.setenv("FAKE_FAULT", fault)
        return tmp_path / "logs"

    return setting


def servers():
    """Stand-ins that run now; -ww, for ps cuts its lines where COLUMNS is set."""
    found = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if str(FAKE) in line and " ps " not in line]


def gone(limit_s=5.0):
    until = time.monotonic() + limit_s
    while servers() and time.monotonic() < until:
        time.sleep(0.05)
    return not servers()


def test_live_writes_a_log_that_is_imported(fake, tmp_path, capsys):
    """To and fro: the replay's steps, through a server and its log, replay as themselves."""
    logs = fake(said(part(), "fixed(5)"))
    words = ("live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)")
    status, out, _ = run(capsys, *words, "-o", tmp_path / "out")
    assert status == 0 and "fixed(5)" in out and gone() and not list(logs.iterdir())
    log = tmp_path / "out" / "fixed-5.jsonl"
    assert run(capsys, "import", "vllm", log, "--out", tmp_path / "served")[0] == 0
    row = simkit.replay(tmp_path / "served", "fixed(5)").records()[0]
    whole = part()
    steps = [s for rows in whole.steps(simkit.policies.Fixed(5)).values() for s in rows]
    drafting = [s for s in steps if s.drafted]
    tau = sum(s.accepted + 1 for s in drafting) / len(drafting)
    assert row["tokens_per_step_any_lo"] <= tau <= row["tokens_per_step_any_hi"], (row, tau)


def test_fidelity_counts_and_explains(fake, tmp_path, capsys):
    answers = said(part(), "fixed(5)")
    first, second, third = answers.values()
    first[2][1] += 1  # one token more was drafted
    second[3][0][0] ^= 1  # another token came out
    fake(answers)
    words = ("fidelity", "reference", "--engine", "llama.cpp", *PAIR, "--n-prompts", 3)
    words += ("--max-new-tokens", 40, "--calibration", 0, "--policy", "fixed(5)")
    status, out, _ = run(capsys, *words, "-o", tmp_path / "out")
    assert status == 0 and gone()
    found = json.loads((tmp_path / "out" / "engine.json").read_text())
    (counts,) = found["counts"]
    assert (counts["tokens_equal"], counts["steps_equal"], counts["prompts"]) == (2, 2, 3)
    kinds = {one["what"]: one["why"] for one in found["differences"]}
    assert kinds["token"].startswith("no tie") and kinds["step"].startswith("not explained")
    assert "0 of 2 differences are explained" in out
    assert run(capsys, *words, "--strict", "-o", tmp_path / "out")[0] == 1


def test_a_replay_compares_equal():
    some = part(6)
    for policy in ("fixed(3)", "llamacpp(p_min=0.6, n_max=5)"):
        answers = said(some, policy)
        replayed = some.steps(simkit.policies.parse(policy))
        for request in some.requests:
            chunks = streamed(answers[",".join(map(str, request.prompt))])
            answer = answer_of(chunks, "here")
            one = compare(request, answer, replayed[request.sequence], CONVENTIONS)
            assert one.tie is None and one.step is None and one.engine == one.replayed


def streamed(steps, held=()):
    """What a server streams of steps; the ids of some tokens, by their numbers, are held back."""
    drafted = accepted = emitted = 0
    for k, (tokens, d, a) in enumerate(steps):
        drafted, accepted = drafted + d, accepted + a
        times = {"draft_n": drafted, "draft_n_accepted": accepted, "predicted_ms": 3.0 * k}
        for token in tokens:
            emitted += 1
            times["predicted_n"] = emitted
            if emitted - 1 in held:
                continue
            yield {"tokens": [token], "stop": False, "timings": {**times, "prompt_ms": 1.0}}
    yield {"tokens": [], "stop": True, "stop_type": "limit", "timings": {**times, "prompt_ms": 1.0}}


def test_steps_whose_ids_are_held_back():
    """A token that ends inside a character: its id is not streamed, nor its step if it is alone."""
    some = part(1)
    (request,) = some.requests
    answers = said(some, "fixed(3)")[",".join(map(str, request.prompt))]
    replayed = some.steps(simkit.policies.Fixed(3))[request.sequence]
    ends = np.cumsum([len(step[0]) for step in answers])
    alone = next(k for k, step in enumerate(answers) if k and len(step[0]) == 1)
    last = next(k for k, step in enumerate(answers) if k and len(step[0]) > 1)
    for held, is_merged in ((ends[alone] - 1, True), (ends[last] - 1, False), (0, False)):
        answer = answer_of(streamed(answers, {held}), "here")
        assert any(step.merged for step in answer.steps) == is_merged
        assert not answer.is_whole
        whole = answer._replace(tokens=request.output)
        one = compare(request, whole, replayed, CONVENTIONS, 3, 40)
        assert one.tie is None and one.step is None, held
        wrong = [step._replace(drafted=step.drafted + step.merged) for step in answer.steps]
        other = compare(request, whole._replace(steps=wrong), replayed, CONVENTIONS, 3, 40)
        assert (other.step is not None) == is_merged


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("predicted_ms", None, "predicted_ms must be a number from 0, not None"),
        ("predicted_ms", "3", "predicted_ms must be a number from 0, not '3'"),
        ("predicted_ms", float("inf"), "predicted_ms must be a number from 0, not inf"),
        ("prompt_ms", -1.0, "prompt_ms must be a number from 0, not -1.0"),
        ("predicted_n", True, "predicted_n must be a number from 0, not True"),
        ("predicted_n", 0, "streams sums that fall"),
        ("draft_n", 0.5, "streams counts that cannot be"),
        ("draft_n_accepted", 10**6, "streams counts that cannot be"),
    ],
)
def test_sums_that_cannot_be_are_refused(name, value, says):
    some = part(1)
    answers = said(some, "fixed(3)")[",".join(map(str, some.requests[0].prompt))]
    chunks = list(streamed(answers))
    chunks[-1]["timings"][name] = value
    with pytest.raises(EngineError) as raised:
        answer_of(chunks, "here")
    assert str(raised.value).startswith(f"here: {says}")


@pytest.mark.parametrize("tokens", [None, 3, ["a"], [1.5]])
def test_tokens_that_are_no_ids_are_refused(tokens):
    some = part(1)
    answers = said(some, "fixed(3)")[",".join(map(str, some.requests[0].prompt))]
    chunks = [chunk | {"tokens": tokens} for chunk in streamed(answers)]
    with pytest.raises(EngineError, match="streams no tokens"):
        answer_of(chunks, "here")


FAULTS = {
    "cannot load": "was not ready: it ended with status 1 (E error loading model: missing tensor)",
    "never ready": "was not ready within 1.5 seconds",
    "dies in a request": "it ended with status 3 (error: out of everything)",
    "answers 500": "answers with status 500: all is lost",
    "hangs": "no answer within 1.5 seconds",
    "breaks off": "the stream broke off before its end",
    "says nothing": "streams no tokens or timings",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_fails(fake, tmp_path, capsys, fault):
    """One line that names the log, which is kept; nothing runs on, nothing is half written."""
    logs = fake(said(part(), "fixed(5)"), fault)
    limits = ("--load-limit", 1.5 if fault == "never ready" else 60)
    limits += ("--time-limit", 1.5 if fault == "hangs" else 60)
    words = ("live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)")
    ended, out, line = run(capsys, *words, *limits, "-o", tmp_path / "out")
    lines = line.splitlines()
    assert (ended, out) == (2, "") and FAULTS[fault] in lines[-1], lines
    (log,) = logs.iterdir()
    assert lines[-1].endswith(f"its log: {log}")
    assert gone() and not list((tmp_path / "out").iterdir())


def test_what_a_server_started_goes_with_it(fake, tmp_path, monkeypatch, capsys):
    fake(said(part(), "fixed(5)"), "has a child")
    monkeypatch.setenv("FAKE_CHILD", str(tmp_path / "pid"))
    words = ("live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)")
    assert run(capsys, *words)[0] == 0
    pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z" not in state(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists() or "Z" in state(pid)


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_the_command(fake, tmp_path, number):
    fake(said(part(), "fixed(5)"), "hangs")
    words = ["live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)"]
    command = [sys.executable, "-m", "simkit", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ours:
        try:
            until = time.monotonic() + 60
            while not servers() and time.monotonic() < until:
                time.sleep(0.05)
            assert servers()
            time.sleep(0.5)
            ours.send_signal(number)
            ours.wait(20)
        finally:
            ours.kill()
    assert gone()


def test_a_port_that_is_taken(fake, capsys):
    fake(said(part(), "fixed(5)"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        words = ("live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)")
        line = run(capsys, *words, "--port", port)[2].splitlines()[-1]
    assert f"--port {port}: cannot be listened on" in line


def test_without_the_wheel(fake, monkeypatch, capsys):
    fake()
    monkeypatch.setenv("PATH", "")
    words = ("live", "reference", "--engine", "llama.cpp", *PAIR, *FEW, "--policy", "fixed(5)")
    ended, _, line = run(capsys, *words)
    assert ended == 2 and "llama.cpp is not installed" in line.splitlines()[-1]


@pytest.mark.parametrize("missing", ["gguf", "openvino_genai"])
def test_conversion_without_its_package(monkeypatch, tmp_path, capsys, missing):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, missing, None)
    to = "gguf" if missing == "gguf" else "openvino"
    assert "pip install 'draft-simkit[engines]'" in refused(
        capsys, "convert", MODELS / "draft", "--to", to
    )
    assert not list((tmp_path / "simkit" / "engines").iterdir())


LIVE = ("live", "reference", "--engine", "llama.cpp")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("live", "--engine", "llama.cpp", *PAIR), "name the trace whose prompts are sent"),
        ((*LIVE, *PAIR, *FEW), "there is no policy to run"),
        ((*LIVE, *PAIR, *FEW, "--policy", "svip(h=0.4)"), "llama.cpp cannot run svip"),
        ((*LIVE, *FEW, "--policy", "fixed(2)"), "give the folder of the trace's target"),
        ((*LIVE, *PAIR[:2], *FEW, "--policy", "fixed(2)"), "give its folder with --draft"),
        ((*LIVE, *PAIR, "--n-prompts", 0, "--policy", "fixed(2)"), "prompts must be from 1"),
        ((*LIVE, *PAIR, "--max-new-tokens", 300), "must be from 2 to the trace's 256, not 300"),
        ((*LIVE, *PAIR, *FEW, "--threads", 0, "--policy", "fixed(2)"), "--threads must be"),
        ((*LIVE, *PAIR, *FEW, "--time-limit", 0, "--policy", "fixed(2)"), "--time-limit"),
        ((*LIVE, *PAIR, *FEW, "--port", 99999, "--policy", "fixed(2)"), "from 1 to 65535"),
        ((*LIVE, *PAIR, "--url", "http://127.0.0.1:1"), "--engine or --url, not both"),
        ((*LIVE, *PAIR, "--head", "x"), "--head cannot be used with --engine"),
        ((*LIVE, *PAIR, "--rounds", 2), "--rounds cannot be used with --engine"),
        ((*LIVE, *PAIR, "--temperature", 1), "decodes greedily"),
        (("live", "reference", "--engine", "vllm", *PAIR, *FEW), "--engine must be llama.cpp"),
        (("live", "reference", "--url", "ftp://x"), "must be http://HOST:PORT"),
        (("live", "reference", "--url", "http://127.0.0.1:1"), "no answer: "),
        (("live", "reference-sampled", "--engine", "llama.cpp", *PAIR), "give a greedy trace"),
        ((*LIVE, "--drafter", "pard", *PAIR), "no engine that simkit runs drafts like parallel("),
        ((*LIVE, "--drafter", "ngram", *PAIR, "--policy", "fixed(2)"), "leave out --draft"),
        (("live", "reference", *PAIR, "--policy", "fixed(2)"), "a trace needs --engine"),
        (
            ("live", "reference", "--engine", "openvino", "--port", 80, *PAIR, *FEW),
            "--port can be used only with --engine llama.cpp",
        ),
        (
            ("fidelity", "reference", "--engine", "llama.cpp", "--first-token", "draft", *PAIR),
            "--first-token cannot be used with --engine",
        ),
        (("convert", MODELS / "draft", "--to", "onnx"), "--to must be gguf or openvino"),
        (("convert", MODELS / "draft", "--to", "gguf", "--dtype", "q4"), "--dtype must be"),
        (("convert", MODELS, "--to", "gguf"), "not a model folder"),
        (("convert", MODELS / "eagle", "--to", "gguf"), "no tokenizer.json in it"),
        (
            ("convert", MODELS / "eagle", "--to", "gguf", "--tokenizer", MODELS / "target"),
            "only LlamaForCausalLM can be written as GGUF, not LlamaForCausalLMEagle",
        ),
    ],
)
def test_what_cannot_be_run(fake, words, says, capsys):
    fake()
    ended, out, line = run(capsys, *words)
    assert (ended, out) == (2, "") and says in line.splitlines()[-1], line
    assert gone()


def test_another_model(fake, tmp_path, capsys):
    """Weights that are not the trace's, and ids beyond a vocabulary."""
    fake()
    words = ("live", "reference", "--engine", "llama.cpp", *FEW, "--policy", "fixed(2)")
    swapped = run(capsys, *words, "--target", MODELS / "pard", "--draft", MODELS / "draft")
    assert swapped[0] == 2 and "another model than the trace's: its weights have" in swapped[2]
    folder = tmp_path / "small"
    folder.mkdir()
    for file in (MODELS / "target").iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 300}))
    small = run(capsys, *words, "--target", folder, "--draft", MODELS / "draft")
    assert small[0] == 2 and "has the token id" in small[2] and "300 ids" in small[2]


def test_a_damaged_model(tmp_path, capsys):
    folder = tmp_path / "cut"
    folder.mkdir()
    for file in (MODELS / "draft").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    line = refused(capsys, "convert", folder, "--to", "gguf")
    assert "is cut short" in line
    weights.write_bytes(b"no weights at all")
    assert "is no safetensors file" in refused(capsys, "convert", folder, "--to", "gguf")


def test_a_conversion_is_kept(capsys):
    words = ("convert", MODELS / "draft", "--to", "gguf")
    first, second = run(capsys, *words), run(capsys, *words)
    assert first[:2] == second[:2] and first[0] == 0
    file = Path(first[1].strip())
    assert file.suffix == ".gguf" and file.read_bytes()[:4] == b"GGUF"
    assert run(capsys, *words, "--dtype", "float16")[1] != first[1]


def test_weights_are_hashed_as_a_manifest_has_them():
    from simkit.engines.run.safetensors_file import ModelFolder

    known = traces.load("reference").manifest
    for name in ("target", "draft"):
        found = ModelFolder.open(MODELS / name).weights_sha256()
        assert found == getattr(known, name).weights_sha256


def test_a_url_is_asked_and_left_alone(fake, tmp_path, capsys):
    fake(said(part(), "fixed(5)"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with subprocess.Popen([sys.executable, str(FAKE), "--port", str(port)]) as server:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 20
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        status, out, _ = run(capsys, "live", "reference", "--url", url, *FEW)
        assert status == 0 and server.poll() is None and "llama" not in out
        server.terminate()


def test_explanations():
    """In words, from what the models say: here made-up ones."""
    from traces.record.margins import Margin

    some = part(1)
    (request,) = some.requests
    step = some.steps(simkit.policies.Fixed(5))[request.sequence][0]
    from simkit.engines.run.compared import Difference

    found = Difference(request, step.start, replayed=step, seen=(step.drafted, 0))

    def model(gap, below=float("nan"), best=7):
        return lambda text, token=None: Margin(best, gap, below, below < 1e-6, 0.6, 0.5)

    tie = explained.of_step(found, model(1e-7), simkit.policies.Fixed(5), (0,))
    assert tie.startswith("a tie of the draft")
    rule = simkit.policies.parse("llamacpp(p_min=0.6, n_max=5)")
    assert explained.of_step(found, model(1.0), rule, (0,)).startswith("a tie of the rule")
    fixed = simkit.policies.Fixed(5)
    assert explained.of_step(found, model(1.0), fixed, (0,)).startswith(explained.UNEXPLAINED)
    capped = found._replace(replayed=step._replace(tried=4))
    rule = simkit.policies.parse("confidence(0.4, max_draft=4)")
    assert "has no ceiling" in explained.of_step(capped, model(1.0), rule, (0,))
    past = found._replace(replayed=step._replace(tried=1, drafted=1), seen=(5, 0))
    assert "behind a drafted EOS" in explained.of_step(past, model(1.0, best=0), fixed, (0,))
    assert explained.of_step(found, None, fixed, (0,)) == explained.UNEXPLAINED
    token = Difference(request, 3, token=9)
    assert explained.of_token(token, model(1.0, 1e-7)).startswith("a tie: ")
    assert explained.of_token(token, model(1.0, 0.5)).startswith("no tie: ")


def test_a_line_of_json_that_is_wrong():
    with pytest.raises(EngineError, match="broke off"):
        answer_of([], "here")


def test_an_eos_inside_a_draft_is_counted_as_llama_cpp_does():
    """The draft goes on behind it, and it counts as sampled; as a draft's last, as accepted."""
    steps = [
        recorded.ReplayedStep(2, 3, 3, 1, 2),  # rejected, then an EOS was drafted in vain
        recorded.ReplayedStep(4, 2, 2, 2, 2),  # accepted up to an EOS
    ]
    told = recorded.as_counted(steps, CONVENTIONS, 5, 40)
    assert told == [(2, 5, 1), (4, 5, 1)]
    assert recorded.as_counted(steps, CONVENTIONS, 2, 40)[1] == (4, 2, 2)
    assert recorded.as_counted(steps, CONVENTIONS, 5, 6)[1] == (4, 2, 2)  # the budget ends there
    assert recorded.as_counted(steps, CONVENTIONS, None, 40) == [(2, 3, 1), (4, 2, 2)]


def test_what_an_engine_s_passes_cannot_heed_is_refused(tmp_path, capsys):
    given = ["--context", 64, "--cost-out", tmp_path / "cost.json", "--seed", 3]
    said = refused(capsys, "latency", "reference", "--engine", "llama.cpp", *PAIR, *given)
    assert said == "simkit: --context, --cost-out, --seed cannot be used with --engine"


@pytest.mark.parametrize("command", ["live", "latency", "fidelity"])
def test_an_unknown_engine_is_named_before_all_else(command, capsys):
    said = refused(capsys, command, "smollm2", "--engine", "vllm")
    assert said == "simkit: --engine must be llama.cpp, openvino, transformers, not 'vllm'"
