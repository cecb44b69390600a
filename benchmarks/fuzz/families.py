"""What is broken and what reads it then: one function a family of cases."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from benchmarks.fuzz import (
    alter,
    borders,
    engine_logs,
    judge,
    laws,
    laws_drafts,
    laws_rows,
    messages,
    plain,
    servers,
)
from benchmarks.fuzz.inputs import COST, TRACES
from benchmarks.fuzz.judge import ACCEPTED, EQUAL, LINEAR, REFUSED, FaultError, Verdict
from simkit.costs import parse
from simkit.errors import CostError, LiveError
from simkit.heads import files as heads
from simkit.live import log
from simkit.policies import names
from traces import parquet
from traces.errors import UserError
from traces.manifest import MANIFEST, SIGNATURE, FileInfo, read_manifest
from traces.record.prompts import read_prompts
from traces.schema import LATENCY
from traces.trace import load

BENCHES = (("specdecode-bench", "bench"), ("spec-bench", "spec"))


def sound(base: Path) -> None:
    """Every input as it was made is read: else what is refused later would prove nothing.

    Raises:
        FaultError: one is refused.
    """
    for name in TRACES:
        judge.truth(base / name)
    laws.check_sound(base)
    engine_logs.check_sound(base)
    servers.check_sound(base)
    for name in ("cost.json", "cost.toml", "cost.parquet", "live.parquet"):
        if not json.loads(judge.priced(base / name, base / "greedy") or "[]"):
            raise FaultError("wrong exit", f"the sound {name} is refused")
    with TemporaryDirectory() as folder:
        for format_, name in BENCHES:
            ended = judge.command(
                "import", format_, base / f"{name}.jsonl", "--out", f"{folder}/{name}"
            )
            if ended.status:
                raise FaultError("wrong exit", f"the sound {name}.jsonl is refused: {ended.err}")
    log.read(base / "live.parquet")
    heads.load(base / "head.safetensors")
    read_prompts(base / "prompts.jsonl", _Letters(), _VOCABULARY)


def _copied(rng: random.Random, base: Path, work: Path) -> tuple[Path, Path]:
    """A trace of the sound ones, and a copy of the same name in a folder of the case."""
    sound = base / rng.choice(TRACES)
    return sound, Path(shutil.copytree(sound, work / sound.name))


def trace_files(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Bytes of a listed file altered; or it is gone, or another one's content."""
    sound, trace = _copied(rng, base, work)
    listed = sorted(path for path in trace.rglob("*") if path.suffix == ".parquet")
    file = rng.choice(listed)
    how = rng.random()
    if how < 0.05:
        file.unlink()
    elif how < 0.1:
        shutil.copyfile(rng.choice(listed + [base / "cost.parquet"]), trace / "copy")
        (trace / "copy").replace(file)
    else:
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
    return judge.judged(rng, sound, trace)


def manifests(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A signed manifest altered, as bytes, as text or by its fields."""
    sound, trace = _copied(rng, base, work)
    file = trace / MANIFEST
    how = rng.random()
    if how < 0.3:
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
    elif how < 0.5:
        text = alter.alter_text(rng, file.read_text())
        file.write_text(text)
    else:
        file.write_text(alter.alter_json(rng, json.loads(file.read_text())))
    if judge.is_signed(file, SIGNATURE):
        return judge.judged(rng, sound, trace)
    cost, policies = judge.settings(trace.name)
    return judge.numbers(judge.replay(trace, cost, *policies))


def unsigned(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A manifest of before signatures altered: what it says counts, if it makes sense."""
    _, trace = _copied(rng, base, work)
    data = json.loads((trace / MANIFEST).read_text())
    del data[SIGNATURE]
    (trace / MANIFEST).write_text(alter.alter_json(rng, data))
    cost, policies = judge.settings(trace.name)
    judge.command(rng.choice(("info", "validate")), trace)
    return judge.numbers(judge.replay(trace, cost, *policies))


def rewritten(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A table written anew with other rows and listed, as a wrong recorder would."""
    _, trace = _copied(rng, base, work)
    file = rng.choice(sorted(path for path in trace.rglob("*") if path.suffix == ".parquet"))
    table = alter.alter_table(rng, pq.read_table(file))
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=True)
    data = sink.getvalue()
    file.write_bytes(data)
    manifest = read_manifest(trace)
    info = FileInfo(table.num_rows, len(data), hashlib.sha256(data).hexdigest())
    listed = {**manifest.files, file.relative_to(trace).as_posix(): info}
    (trace / MANIFEST).write_text(replace(manifest, files=listed).to_json())
    judge.command(rng.choice(("info", "validate")), trace)
    cost, policies = judge.settings(trace.name)
    return judge.numbers(judge.replay(trace, cost, *policies))


def specs(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A policy's or a cost's spec of words, numbers and brackets in any order."""
    if rng.random() < 0.25:
        cost = alter.alter_text(rng, rng.choice((LINEAR, "measured(batch_size=1)", "roofline()")))
        return judge.numbers(judge.replay(base / "greedy", cost, "fixed(3)"))
    arguments = ("h=0.4", "3", "threshold=0.5", "max_draft=8", "length=2", "initial=5", "block=2")
    spec = f"{rng.choice(names())}({', '.join(rng.sample(arguments, rng.randint(0, 2)))})"
    if rng.random() < 0.6:
        spec = alter.alter_text(rng, spec)
    if rng.random() < 0.2:
        spec = f"fixed(0:{rng.choice(('9' * 30, '3', '1e9', '-1'))}:{rng.choice('0123')})"
        out = work / "sweep.parquet"
        return judge.numbers(
            judge.command("sweep", base / "sampled", "--cost", LINEAR, "--policy", spec, "-o", out)
        )
    return judge.numbers(judge.replay(base / "sampled", LINEAR, spec))


def cost_texts(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A cost in JSON or TOML, altered."""
    name = rng.choice(("cost.json", "cost.toml"))
    text = (base / name).read_text()
    if name == "cost.json" and rng.random() < 0.5:
        text = alter.alter_json(rng, COST)
        (work / name).write_text(text)
    elif rng.random() < 0.5:
        (work / name).write_text(alter.alter_text(rng, text))
    else:
        (work / name).write_bytes(alter.alter_bytes(rng, text.encode()))
    verdict = judge.numbers(judge.replay(base / "sampled", str(work / name), "fixed(3)"))
    if verdict.word == REFUSED or (expected := plain.cost(work / name)) is None:
        return verdict
    if (found := parse(str(work / name))) != expected:
        raise FaultError("wrong number", f"{found} instead of {expected}")
    return Verdict(EQUAL, "")


def samples(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Timing samples or a log of live runs in Parquet, as a cost: bytes altered."""
    name = rng.choice(("cost.parquet", "live.parquet"))
    file = work / name
    file.write_bytes(alter.alter_bytes(rng, (base / name).read_bytes()))
    truth = judge.priced(base / name, base / "greedy")
    ended = judge.replay(base / "greedy", str(file), "fixed(3)")
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if ended.out.replace(str(file), "") != truth.replace(str(base / name), ""):
        raise FaultError("wrong number", f"{ended.out[:300]} instead of {truth[:300]}")
    return Verdict(EQUAL, "")


def sealed_rows(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Timing samples with other rows, with a digest that fits: wrong ones must be refused."""
    table = alter.alter_table(rng, parquet.read_samples(base / "cost.parquet", LATENCY, CostError))
    file = work / "cost.parquet"
    pq.write_table(table.replace_schema_metadata(None), file)
    return judge.numbers(judge.replay(base / "greedy", str(file), "fixed(3)"))


def logs(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A log of live runs, bytes altered, read as a log."""
    file = work / "live.parquet"
    file.write_bytes(alter.alter_bytes(rng, (base / "live.parquet").read_bytes()))
    return judge.same(lambda path: log.read(path), base / "live.parquet", file, LiveError)


_VOCABULARY = 50


class _Letters:
    """A tokenizer: a token a letter."""

    chat_template = "{{ messages }} {{ tools }} {{ documents }}"

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) % 50 for letter in text]

    def get_chat_template(self, tools: Any = None) -> str:
        return self.chat_template

    def apply_chat_template(self, messages: list, **options: Any) -> str:
        return "".join(str(message["content"]) for message in messages)


def prompts(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A file of prompts, altered."""
    file = work / "prompts.jsonl"
    if rng.random() < 0.8:
        _alter_lines(rng, base / "prompts.jsonl", file)
    else:
        _add_name(rng, base / "prompts.jsonl", file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = read_prompts(file, _Letters(), _VOCABULARY)
        except UserError as problem:
            return judge.refusal(problem)
    unread, notes = plain.unread(file), " ".join(str(one.message) for one in said)
    if unread and unread not in notes and ascii(unread) not in notes:
        raise FaultError("wrong number", f"nothing is said of {unread}, which is not read")
    if any(not 0 <= token < _VOCABULARY for prompt in found for token in prompt.tokens):
        raise FaultError("wrong number", "a token outside of the vocabulary")
    rows = [(prompt.id, prompt.task, prompt.text, prompt.tokens) for prompt in found]
    if rows != (expected := plain.prompts(file, _Letters())):
        raise FaultError("wrong number", f"{rows} instead of {expected}"[:600])
    json.dumps(rows, ensure_ascii=False).encode()
    return Verdict(EQUAL, "")


def _add_name(rng: random.Random, sound: Path, file: Path) -> None:
    """A name or another kind of prompt is there too, or a token that no model has."""
    lines = [json.loads(line) for line in sound.read_text().splitlines()]
    line = rng.choice(lines)
    name = rng.choice(
        ("colour", "tools", "documents", "ids", "prompt", "prompt_tokens", "messages")
    )
    line[name] = rng.choice(("x", [1, 2], [50], [-1], [{}], 1))
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _alter_lines(rng: random.Random, sound: Path, file: Path) -> None:
    text = sound.read_text()
    how = rng.random()
    if how < 0.3:
        file.write_bytes(alter.alter_bytes(rng, text.encode()))
    elif how < 0.5:
        file.write_text(alter.alter_text(rng, text))
    else:
        lines = text.splitlines()
        k = rng.randrange(len(lines))
        lines[k] = alter.alter_json(rng, json.loads(lines[k]))
        file.write_text("\n".join(lines) + "\n")


def imports(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Another program's file, altered; what is imported must be a sound trace."""
    format_, name = rng.choice(BENCHES)
    file = work / f"{name}.jsonl"
    _alter_lines(rng, base / f"{name}.jsonl", file)
    ended = judge.command("import", format_, file, "--out", work / "imported")
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if name != "bench":
        return Verdict(ACCEPTED, "")
    if (found := judge.command("validate", work / "imported")).status:
        raise FaultError("wrong number", f"what was imported is not valid: {found.err[:300]}")
    there = load(work / "imported")
    source = there.manifest.source
    if other := plain.check_lengths(file, source.drafter if source else "", there):
        raise FaultError("wrong number", f"what was imported has another {other}")
    return Verdict(EQUAL, "")


def sidecars(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A head's weights or its sidecar, altered: refused or equal, unless it is signed no more."""
    for end in (".json", ".safetensors"):
        shutil.copyfile(base / f"head{end}", work / f"head{end}")
    file = work / "head.safetensors"
    if rng.random() < 0.5:
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
        return judge.same(_head, base / file.name, file, UserError)
    sidecar = work / "head.json"
    text = sidecar.read_text()
    how = (alter.alter_text(rng, text), alter.alter_json(rng, json.loads(text)))
    sidecar.write_text(rng.choice(how))
    if judge.is_signed(sidecar, heads.SIGNATURE):
        return judge.same(_head, base / file.name, file, UserError)
    try:
        _head(file)
    except UserError as problem:
        return judge.refusal(problem)
    return Verdict(ACCEPTED, "")


def _head(file: Path) -> tuple[str, dict[str, Any]]:
    found = heads.load(file)
    return found.hash, dict(found.facts)


def cost_words(rng: random.Random, base: Path, work: Path) -> Verdict:
    """The name of a cost, altered, parsed alone."""
    try:
        parse(alter.alter_text(rng, rng.choice(("roofline(device=h100)", LINEAR, "measured"))))
    except UserError as problem:
        return Verdict(REFUSED, str(problem))
    return Verdict(ACCEPTED, "")


FAMILIES: dict[str, Callable[[random.Random, Path, Path], Verdict]] = {
    "files of traces": trace_files,
    "manifests": manifests,
    "manifests without signature": unsigned,
    "rows written anew": rewritten,
    "specs": specs,
    "names of costs": cost_words,
    "costs in JSON and TOML": cost_texts,
    "timing samples": samples,
    "rows of timing samples": sealed_rows,
    "live logs": logs,
    "prompts": prompts,
    "imports": imports,
    "heads": sidecars,
    **laws_rows.FAMILIES,
    **laws_drafts.FAMILIES,
    **borders.FAMILIES,
    **servers.FAMILIES,
    **messages.FAMILIES,
    "logs of engines": engine_logs.one_field,
}
SLOW = ("compiled rules",)
"""Those whose cases take long: they come up seldom."""
