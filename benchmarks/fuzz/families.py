"""What is broken and what reads it then: one function a family of cases."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from benchmarks.fuzz import alter
from benchmarks.fuzz.inputs import COST, TRACES
from simkit.cli import main
from simkit.costs import parse
from simkit.errors import CostError, LiveError
from simkit.heads import files as heads
from simkit.live import log
from simkit.policies import names
from traces import parquet
from traces.errors import UserError
from traces.manifest import MANIFEST, FileInfo, read_manifest
from traces.record.prompts import read_prompts
from traces.schema import LATENCY

REFUSED, EQUAL, ACCEPTED = "refused", "accepted, equal", "accepted, its own"
FAULTS = ("traceback", "wrong exit", "wrong number", "hang", "memory", "died")
VERDICTS = (REFUSED, EQUAL, ACCEPTED, *FAULTS)
BENCHES = (("specdecode-bench", "bench"), ("spec-bench", "spec"))
LINEAR = "linear(draft_s=0.001, target_s=0.008)"


class Ended(NamedTuple):
    """How a command ended: its status, what it printed, what it said."""

    status: int
    out: str
    err: str


class Verdict(NamedTuple):
    """What became of a case: one of `VERDICTS`, and what tells of it."""

    word: str
    detail: str


class FaultError(Exception):
    """A case that must not end so; its arguments are those of `Verdict`."""


def command(*arguments: object) -> Ended:
    """Run `simkit` in this process.

    Raises:
        FaultError: it ends neither well nor with status 2 and lines of our own.
    """
    out, err = io.StringIO(), io.StringIO()
    status: Any = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in arguments])
        except SystemExit as end:
            status = end.code
    ended = Ended(status, out.getvalue(), err.getvalue())
    lines = [line for line in ended.err.splitlines() if line.strip()]
    if status not in (0, 2) or "Traceback" in ended.err:
        raise FaultError("wrong exit", f"status {status}: {ended.err[-300:]}")
    if status == 2 and not (lines and all(line.startswith("simkit: ") for line in lines)):
        raise FaultError("wrong exit", f"status 2, but says {ended.err[-300:]!r}")
    return ended


def _replay(trace: Path, cost: str | None, *policies: str) -> Ended:
    chosen = [word for policy in policies for word in ("--policy", policy)]
    priced = [] if cost is None else ["--cost", cost]
    return command("replay", trace, *chosen, *priced, "--format", "json")


def _numbers(ended: Ended) -> Verdict:
    """Refused or, where numbers may be others, at least numbers."""
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if re.search(r"\b(NaN|-?Infinity)\b", ended.out):
        raise FaultError("wrong number", f"NaN or infinite: {ended.out[:200]}")
    return Verdict(ACCEPTED, "")


def _settings(name: str) -> tuple[str | None, tuple[str, ...]]:
    cost = LINEAR if name == "lattice" else None
    return cost, ("fixed(3)",) if name == "lattice" else ("fixed(3)", "svip(h=0.4)", "specdecpp")


@cache
def _truth(trace: Path) -> str:
    cost, policies = _settings(trace.name)
    ended = _replay(trace, cost, *policies)
    if ended.status:
        raise FaultError("wrong exit", f"the sound trace is refused: {ended.err}")
    return ended.out


def sound(base: Path) -> None:
    """Every input as it was made is read: else what is refused later would prove nothing.

    Raises:
        FaultError: one is refused.
    """
    for name in TRACES:
        _truth(base / name)
    for name in ("cost.json", "cost.toml", "cost.parquet", "live.parquet"):
        if not json.loads(_priced(base / name, base / "greedy") or "[]"):
            raise FaultError("wrong exit", f"the sound {name} is refused")
    with TemporaryDirectory() as folder:
        for format_, name in BENCHES:
            ended = command("import", format_, base / f"{name}.jsonl", "--out", f"{folder}/{name}")
            if ended.status:
                raise FaultError("wrong exit", f"the sound {name}.jsonl is refused: {ended.err}")
    log.read(base / "live.parquet")
    heads.load(base / "head.safetensors")
    read_prompts(base / "prompts.jsonl", _Letters(), 50)


def _copied(rng: random.Random, base: Path, work: Path) -> tuple[Path, Path]:
    """A trace of the sound ones, and a copy of the same name in a folder of the case."""
    sound = base / rng.choice(TRACES)
    return sound, Path(shutil.copytree(sound, work / sound.name))


def _judged(rng: random.Random, sound: Path, trace: Path) -> Verdict:
    """Refused, or equal counts and seconds."""
    cost, policies = _settings(trace.name)
    truth = _truth(sound)
    if rng.random() < 0.3:
        command(rng.choice(("info", "validate")), trace)
    ended = _replay(trace, cost, *policies)
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if ended.out != truth:
        raise FaultError("wrong number", f"{ended.out[:300]} instead of {truth[:300]}")
    return Verdict(EQUAL, "")


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
    return _judged(rng, sound, trace)


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
    return _judged(rng, sound, trace)


def unsigned(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A manifest of before signatures altered: what it says counts, if it makes sense."""
    _, trace = _copied(rng, base, work)
    data = json.loads((trace / MANIFEST).read_text())
    del data["manifest_sha256"]
    (trace / MANIFEST).write_text(alter.alter_json(rng, data))
    cost, policies = _settings(trace.name)
    command(rng.choice(("info", "validate")), trace)
    return _numbers(_replay(trace, cost, *policies))


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
    command(rng.choice(("info", "validate")), trace)
    cost, policies = _settings(trace.name)
    return _numbers(_replay(trace, cost, *policies))


def specs(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A policy's or a cost's spec of words, numbers and brackets in any order."""
    if rng.random() < 0.25:
        cost = alter.alter_text(rng, rng.choice((LINEAR, "measured(batch_size=1)", "roofline()")))
        return _numbers(_replay(base / "greedy", cost, "fixed(3)"))
    arguments = ("h=0.4", "3", "threshold=0.5", "max_draft=8", "length=2", "initial=5", "block=2")
    spec = f"{rng.choice(names())}({', '.join(rng.sample(arguments, rng.randint(0, 2)))})"
    if rng.random() < 0.6:
        spec = alter.alter_text(rng, spec)
    if rng.random() < 0.2:
        spec = f"fixed(0:{rng.choice(('9' * 30, '3', '1e9', '-1'))}:{rng.choice('0123')})"
        out = work / "sweep.parquet"
        return _numbers(
            command("sweep", base / "sampled", "--cost", LINEAR, "--policy", spec, "-o", out)
        )
    return _numbers(_replay(base / "sampled", LINEAR, spec))


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
    return _numbers(_replay(base / "sampled", str(work / name), "fixed(3)"))


@cache
def _priced(file: Path, trace: Path) -> str:
    return _replay(trace, str(file), "fixed(3)").out


def samples(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Timing samples or a log of live runs in Parquet, as a cost: bytes altered."""
    name = rng.choice(("cost.parquet", "live.parquet"))
    file = work / name
    file.write_bytes(alter.alter_bytes(rng, (base / name).read_bytes()))
    truth = _priced(base / name, base / "greedy")
    ended = _replay(base / "greedy", str(file), "fixed(3)")
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
    return _numbers(_replay(base / "greedy", str(file), "fixed(3)"))


def logs(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A log of live runs, bytes altered, read as a log."""
    file = work / "live.parquet"
    file.write_bytes(alter.alter_bytes(rng, (base / "live.parquet").read_bytes()))
    return _same(lambda path: log.read(path), base / "live.parquet", file, LiveError)


def _same(read: Callable[[Path], Any], sound: Path, file: Path, error: type[UserError]) -> Verdict:
    """What is read is refused in a line, or equal."""
    try:
        found = read(file)
    except error as problem:
        return _refusal(problem)
    if found != read(sound):
        raise FaultError("wrong number", "what was read is not what was written")
    return Verdict(EQUAL, "")


def _refusal(problem: UserError) -> Verdict:
    if len(str(problem).splitlines()) != 1:
        raise FaultError("wrong exit", f"not one line: {str(problem)[:300]!r}")
    return Verdict(REFUSED, str(problem))


class _Letters:
    """A tokenizer: a token a letter."""

    chat_template = "x"

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) % 50 for letter in text]

    def apply_chat_template(self, messages: list, **options: Any) -> str:
        return "".join(str(message["content"]) for message in messages)


def prompts(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A file of prompts, altered."""
    file = work / "prompts.jsonl"
    _alter_lines(rng, base / "prompts.jsonl", file)
    try:
        found = read_prompts(file, _Letters(), 50)
    except UserError as problem:
        return _refusal(problem)
    for prompt in found:
        json.dumps([prompt.id, prompt.task, prompt.text], ensure_ascii=False).encode()
    return Verdict(ACCEPTED, "")


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
    ended = command("import", format_, file, "--out", work / "imported")
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if name == "bench" and (found := command("validate", work / "imported")).status:
        raise FaultError("wrong number", f"what was imported is not valid: {found.err[:300]}")
    return Verdict(ACCEPTED, "")


def sidecars(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A head's weights or its sidecar, altered; weights must be refused or equal."""
    for end in (".json", ".safetensors"):
        shutil.copyfile(base / f"head{end}", work / f"head{end}")
    if rng.random() < 0.5:
        file = work / "head.safetensors"
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
        return _same(lambda p: heads.load(p).hash, base / file.name, file, UserError)
    file = work / "head.json"
    text = file.read_text()
    how = (alter.alter_text(rng, text), alter.alter_json(rng, json.loads(text)))
    file.write_text(rng.choice(how))
    try:
        heads.load(work / "head.safetensors")
    except UserError as problem:
        return _refusal(problem)
    return Verdict(ACCEPTED, "")


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
}
