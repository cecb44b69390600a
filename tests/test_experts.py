"""Experts: what a pass reads, against plain passes of tiny models; what it costs."""

import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
import torch
from commands import refused, run
from pair_folders import pair_folder

import simkit
from benchmarks.experts import RECORDS, family
from benchmarks.tiny_models import EOS, VOCAB, noisy, tiny_config, tiny_model
from simkit import costs
from simkit.costs import CostError
from traces import files, subset, writer
from traces.attach import registry
from traces.attach.run import attach
from traces.columns import state_table
from traces.errors import RecordError, TraceError, UserError
from traces.record.header import make_header
from traces.record.pair import Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.recorder import record
from traces.record.routers import Routing
from traces.thin import thin
from traces.trace import load
from traces.validate import validate

KINDS = ("mixtral", "qwen3_moe", "olmoe", "gpt_oss")
# DeepSeek's bias and groups are in no recorded logits.
OTHERS = (
    "llama4",
    "longcat_flash",
    "deepseek_v3",
    "glm4_moe",
    "phimoe",
    "granitemoe",
    "dots1",
    "ernie4_5_moe",
    "cohere2_moe",
)
POLICIES = ("fixed(4)", "fixed(0)", "svip(h=0.5)", "heuristic(initial=3)", "pearl(3)", "oracle")
PRICE = {"draft_s": 0.001, "target_s": 0.01, "target_per_expert_s": 0.002}
PRICE |= {"target_per_token_s": 1e-4, "target_per_kv_token_s": 1e-6}


class Tokenizer:
    eos_token_id = EOS
    vocab = {f"w{k}": k for k in range(VOCAB)}

    def get_vocab(self):
        return self.vocab

    def encode(self, text, **given):
        return [1, 2, 3]

    def __len__(self):
        return VOCAB


def pair(kind):
    model = tiny_model(tiny_config(kind), torch.float64)
    return Pair(model, noisy(model, 0.3), Tokenizer(), VOCAB, (EOS,))


def prompts():
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(2, VOCAB - 1, (n,), generator=generator).tolist() for n in (4, 9, 7)]
    return [Prompt(str(k), "ab"[k % 2], None, text) for k, text in enumerate(texts)]


def plan(**changed):
    given = {"max_new_tokens": 20, "max_draft": 8, "eos_token_ids": (EOS,), "batch_size": 2}
    return Plan(**given | {"experts": True} | changed)


def recorded(models, folder, **changed):
    how = plan(**changed)
    record(models, prompts(), folder, how, make_header(models, prompts(), how))
    return load(folder)


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    models = pair(request.param)
    return models, recorded(models, tmp_path_factory.mktemp(request.param) / "trace")


def routed(model):
    """Pairs (layer, expert) of the tokens of a text, by an uncached pass of the model's own."""

    @cache
    def of(text):
        with torch.no_grad():
            out = model(input_ids=torch.tensor([text]), output_router_logits=True, use_cache=False)
        k = model.config.num_experts_per_tok
        layers = [logits.reshape(len(text), -1).topk(k, -1).indices for logits in out.router_logits]
        return [
            {(n, int(e)) for n, chosen in enumerate(layers) for e in chosen[t]}
            for t in range(len(text))
        ]

    return of


def drafts(trace, s):
    """The draft tokens that a step sees which starts at position i of sequence s."""
    rows = slice(*trace.position_offsets[s : s + 2])
    token, accepted = (trace.positions(name)[rows] for name in ("draft_token", "accepted"))
    off = trace.branch_offsets[rows.start : rows.stop + 1]

    def of(i):
        found = []
        for k in range(i - 1, len(token)):
            found.append(int(token[k]))
            if not accepted[k]:
                found += trace.branches("draft_token")[off[k] : off[k + 1]].tolist()
                break
        return found

    return of


def plain_counts(trace, policy, model):
    """Each step's pass run plainly: pairs that its inputs read, and those of the last token."""
    of, counts = routed(model), []
    result = simkit.replay(trace, policy, by="step", cost=costs.Linear(**PRICE))
    run = result.runs[0]
    tokens = run.work(run.steps()[0]).verified
    for row, n in zip(result.records(), tokens, strict=True):
        known = trace.sequences.slice(row["sequence"], 1).to_pylist()[0]
        text = known["prompt_tokens"] + known["output_tokens"][: row["start"] - 1]
        proposed = drafts(trace, row["sequence"])(row["start"])[: n - 1]
        assert len(proposed) == n - 1
        pairs = of(tuple(text + proposed))[len(text) - 1 :]
        counts.append((len(set().union(*pairs)), int(n), len(text)))
    return result, np.array(counts)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_reads_what_a_plain_pass_reads(case, policy):
    models, trace = case
    result, counts = plain_counts(trace, policy, models.target)
    read, tokens, known = counts.T
    frame = result.frame
    assert frame["experts"].to_list() == read.tolist()
    verify_s = PRICE["target_s"] + PRICE["target_per_token_s"] * tokens
    verify_s = verify_s + PRICE["target_per_kv_token_s"] * (known)
    verify_s = verify_s + PRICE["target_per_expert_s"] * read
    assert frame["verify_s"].to_numpy() == pytest.approx(verify_s, rel=1e-12)


def test_the_baseline_and_the_prefill_read_their_own(case):
    models, trace = case
    of, cost = routed(models.target), costs.Linear(**PRICE)
    (row,) = simkit.replay(trace, "fixed(0)", cost=cost).records()
    baseline_s = prefill_s = 0.0
    for known in trace.sequences.to_pylist():
        prompt, output = known["prompt_tokens"], known["output_tokens"]
        pairs = of(tuple(prompt + output))
        first_s = PRICE["target_s"] + PRICE["target_per_token_s"] * len(prompt)
        first_s += PRICE["target_per_expert_s"] * len(set().union(*pairs[: len(prompt)]))
        prefill_s += first_s
        for at in range(len(prompt), len(prompt) + len(output)):
            baseline_s += PRICE["target_s"] + PRICE["target_per_token_s"]
            baseline_s += PRICE["target_per_kv_token_s"] * at
            baseline_s += PRICE["target_per_expert_s"] * len(pairs[at - 1])
    assert row["baseline_s"] == pytest.approx(baseline_s + prefill_s, rel=1e-12)
    assert row["prefill_s"] == pytest.approx(prefill_s, rel=1e-12)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_poisoned_expert_reaches_those_who_read_it(kind):
    found = family(kind)
    assert found.outcome == RECORDS, found


def test_other_columns_do_not_change_by_a_bit(case, tmp_path):
    models, trace = case
    plain = recorded(models, tmp_path / "plain", experts=False)
    assert plain.manifest.experts is None and '"experts"' not in plain.manifest.to_json()
    for name, info in plain.manifest.files.items():
        assert trace.manifest.files[name] == info
    assert validate(trace.path) == []


@pytest.mark.parametrize("changed", [{}, {"branch_target": True}, {"max_draft": 1}])
def test_rows_are_those_that_a_verification_may_read(changed, tmp_path):
    models = pair("mixtral")
    trace = recorded(models, tmp_path / "trace", **changed)
    assert validate(trace.path) == []
    of, bits = routed(models.target), trace.column("experts", "experts")
    keys = [trace.column("experts", name) for name in ("sequence", "position", "depth")]
    for s, position, depth, row in zip(*keys, bits, strict=True):
        known = trace.sequences.slice(int(s), 1).to_pylist()[0]
        text = known["prompt_tokens"] + known["output_tokens"][: max(0, position - 1)]
        text = text + drafts(trace, int(s))(int(position))[:depth]
        pairs = of(tuple(text))
        wanted = set().union(*pairs) if position == 0 else pairs[-1]
        flags = np.unpackbits(row.reshape(2, -1), axis=1, bitorder="little")
        assert {(int(a), int(b)) for a, b in np.argwhere(flags)} == wanted


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory):
    return recorded(pair("mixtral"), tmp_path_factory.mktemp("moe") / "trace")


def replayed(trace, policy="svip(h=0.5)"):
    return simkit.replay(trace, [policy, "pearl(2)"], cost=costs.Linear(**PRICE), by="step")


def test_copies_and_cuts_keep_them(mixtral, tmp_path):
    thinner = load(thin(mixtral, tmp_path / "thin", drop_tokens=True, bits=12))
    assert validate(thinner.path) == []
    assert replayed(thinner).frame["experts"].equals(replayed(mixtral).frame["experts"])
    some = subset.select(mixtral, [0, 2])
    whole = replayed(mixtral).frame.filter(pl.col("sequence").is_in([0, 2]))
    assert replayed(some).frame["experts"].equals(whole["experts"])
    writer.save(some, tmp_path / "saved")
    assert validate(tmp_path / "saved") == []
    assert replayed(load(tmp_path / "saved")).frame["experts"].equals(whole["experts"])


@pytest.mark.parametrize("budget", [1, 5, 19, 20])
def test_a_shorter_budget_keeps_what_would_have_been_recorded(budget, tmp_path):
    models = pair("mixtral")
    whole = recorded(models, tmp_path / "whole")
    cut = subset.select(whole, range(3), max_new_tokens=budget)
    short = recorded(models, tmp_path / "short", max_new_tokens=budget)
    for name in ("sequence", "position", "depth", "experts"):
        assert np.array_equal(cut.column("experts", name), short.column("experts", name)), name


def test_resumed_is_the_same_to_the_byte(mixtral, tmp_path):
    class StopError(Exception):
        pass

    def stop(n):
        raise StopError

    models, how = pair("mixtral"), plan()
    header = make_header(models, prompts(), how)
    with pytest.raises(StopError):
        record(models, prompts(), tmp_path / "t", how, header, on_shard=stop)
    record(models, prompts(), tmp_path / "t", how, header, resume=True)
    assert load(tmp_path / "t").manifest == mixtral.manifest
    other = make_header(models, prompts(), plan(experts=False))
    with pytest.raises(TraceError, match="experts"):
        record(models, prompts(), tmp_path / "t", plan(experts=False), other, resume=True)


def damaged(trace, folder, change):
    """A copy whose rows of experts are changed, with a manifest that says so."""
    shutil.copytree(trace.path, folder)
    name = "experts/00000.parquet"
    names = ("sequence", "position", "depth", "experts")
    rows = {key: np.array(trace.column("experts", key)) for key in names}
    n = trace.manifest.files[name].rows
    rows = change({key: values[:n] for key, values in rows.items()})
    data, info = files.encode(state_table("experts", rows))
    (folder / name).write_bytes(data)
    listed = {**trace.manifest.files, name: info}
    (folder / "manifest.json").write_text(replace(trace.manifest, files=listed).to_json())
    return folder


def flipped(rows, bit):
    rows["experts"][7, 0] ^= 1 << bit
    return rows


DAMAGES = {
    "experts beyond the 4 of a layer": lambda rows: flipped(rows, 5),
    "more experts in a layer": lambda rows: rows | {"experts": rows["experts"] | 15},
    "the key does not follow": lambda rows: rows | {"depth": rows["depth"] + (rows["depth"] > 1)},
    "rows of experts": lambda rows: {key: values[:-1] for key, values in rows.items()},
}


@pytest.mark.parametrize("said", DAMAGES)
def test_wrong_rows_are_refused(mixtral, tmp_path, said):
    folder = damaged(mixtral, tmp_path / "trace", DAMAGES[said])
    assert any(said in line for line in validate(folder))
    with pytest.raises(TraceError, match=said):
        load(folder).column("experts", "experts")


def test_a_price_needs_the_routing(tmp_path):
    cost = costs.Linear(**PRICE)
    for given in (cost, "roofline(device=h100, experts=true)"):
        with pytest.raises(CostError, match="does not have"):
            simkit.replay("reference", "fixed(2)", cost=given)
    attach(trace := recorded(pair("mixtral"), tmp_path / "t"), registry.parse("prompt_lookup()"))
    attached = trace.with_drafter("prompt_lookup")
    with pytest.raises(CostError, match="prompt_lookup"):
        simkit.replay(attached, "fixed(2)", cost=cost)
    with pytest.raises(CostError, match="batch"):
        costs.Linear(**PRICE, batch_size=2)
    with pytest.raises(CostError, match="batch"):
        cost.of_batch(2)
    with pytest.raises(CostError, match="its own target"):
        costs.Roofline(device="h100", experts=True, target="llama2-7b")


@pytest.mark.parametrize("policy", ["prophet", "rate_optimal", "pearl"])
def test_what_weighs_passes_beforehand_is_refused_or_right(mixtral, policy):
    try:
        found = simkit.replay(mixtral, policy, cost=costs.Linear(**PRICE), by="step")
    except UserError as error:
        assert "experts" in str(error) and policy in ("prophet", "rate_optimal")
    else:
        read = found.frame["experts"].to_numpy()
        assert policy == "pearl" and (read >= 4).all()


def test_a_server_is_refused(mixtral):
    with pytest.raises(CostError, match="experts"):
        simkit.serve(mixtral, "fixed(2)", cost=costs.Linear(**PRICE), rate=1.0, requests=4)


def test_roofline_reads_those_experts_alone(mixtral):
    cost = costs.Roofline(device="h100", rate_flops_per_s=1e18)
    all_ = simkit.replay(mixtral, "fixed(3)", cost=cost, by="step")
    one = simkit.replay(mixtral, "fixed(3)", cost=replace(cost, experts=True), by="step")
    info = mixtral.manifest.experts
    idle = info.layers * info.count - one.frame["experts"].to_numpy()
    saved_s = (all_.frame["verify_s"] - one.frame["verify_s"]).to_numpy()
    expert_s = 8 * info.parameters / 3.35e12  # of float64
    assert saved_s == pytest.approx(idle * expert_s, rel=1e-6)


def test_sweeps_price_them_alike(mixtral):
    cost = costs.Linear(**PRICE)
    swept = simkit.sweep(mixtral, "fixed(0:4)", cost=cost)
    for spec, total_s in swept.frame.select("policy", "total_s").iter_rows():
        (row,) = simkit.replay(mixtral, spec, cost=cost).records()
        assert row["total_s"] == pytest.approx(total_s, rel=1e-12)


@pytest.mark.parametrize("kind", ["llama", "jetmoe"])
def test_a_model_without_routing_is_refused_by_name(kind):
    with pytest.raises(RecordError, match=r"--experts: .*(Llama|JetMoe)ForCausalLM"):
        Routing(tiny_model(tiny_config(kind), torch.float32))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = pair_folder(tmp_path_factory.mktemp("cli"))
    shutil.copytree(root / "target", root / "experts")
    tiny = tiny_model(tiny_config("olmoe", vocab_size=40), torch.float32)
    tiny.save_pretrained(root / "experts")
    return root


def asked(root, target="experts", *more):
    words = ["record", "--target", root / target, "--prompts", root / "prompts.jsonl"]
    words += ["--device", "cpu", "--max-new-tokens", 24, "--max-draft", 6, "--experts"]
    return [*words, "--out", root / "moe", *more]


def test_from_the_command_line(folders, capsys):
    draft = ("--draft", folders / "draft")
    assert run(capsys, *asked(folders, "experts", *draft))[0] == 0
    said = " ".join(run(capsys, "info", folders / "moe")[1].split())
    assert "a token reads 2 of 4 experts in each of 2 layers" in said and "experts " in said
    cost = "linear(draft_s=0.001, target_s=0.01, target_per_expert_s=0.002)"
    words = ["replay", folders / "moe", "--policy", "fixed(3)", "--cost", cost, "--by", "step"]
    rows = json.loads(run(capsys, *words, "--format", "json")[1])
    assert all(row["verify_s"] == pytest.approx(0.01 + 0.002 * row["experts"]) for row in rows)
    assert {4, 8} >= {row["experts"] for row in rows if row["proposed"] == 0}
    assert max(row["experts"] for row in rows) > 4
    assert "experts" in run(capsys, *words)[1]
    assert "does not have" in refused(capsys, *["replay", "reference", *words[2:-2]])


def test_what_cannot_be_recorded_leaves_nothing(folders, capsys, tmp_path):
    words = asked(folders, "target", "--draft", folders / "draft", "--out", tmp_path / "none")
    assert "LlamaForCausalLM has no experts" in refused(capsys, *words)
    words = asked(folders, "experts", "--out", tmp_path / "none")
    assert "--experts is about a draft model" in refused(capsys, *words)
    assert not (tmp_path / "none").exists()
