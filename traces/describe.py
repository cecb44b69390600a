"""A trace in brief: what `simkit info` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from traces import drafters
from traces.conditions import conditions
from traces.errors import TraceError
from traces.loops import Looping, looping, made_of
from traces.manifest import ExpertsInfo, ModelInfo, OutputsInfo, SourceInfo
from traces.messages import how_many
from traces.sampler import Sampler
from traces.trace import Trace, load


def describe(trace: Trace) -> dict[str, Any]:
    """Settings, sizes and a few statistics, ready for JSON.

    Shares and means are over all positions (those of a lattice, over the tokens of all drafts up to
    the first rejected one): `accepted` is the chance that a draft token is accepted given that all
    before it were; `overlap` is the mean of sum min(p, q), raw; entropies are medians, in nats;
    `loops` is how much of the outputs repeats itself. None stands for what is not known.
    """
    manifest = trace.manifest
    return {
        "path": None if trace.path is None else trace.place,
        "hash": trace.hash,
        "kind": manifest.kind,
        "coupling": manifest.coupling,
        "spec": manifest.spec,
        "drafters": _drafters(trace),
        **{name: _facts(getattr(manifest, name)) for name in _INFOS},
        "vocab_size": manifest.vocab_size,
        "bits": manifest.bits,
        "tokens": manifest.tokens,
        "dtype": manifest.dtype,
        "device": manifest.device,
        "libraries": dict(manifest.libraries),
        "sampler": asdict(manifest.sampler),
        "seed": manifest.seed,
        "max_draft": manifest.max_draft,
        "max_new_tokens": manifest.max_new_tokens,
        "eos_token_ids": list(manifest.eos_token_ids),
        "eos_from": manifest.eos_from,
        "set_aside": list(manifest.set_aside),
        "other_ends": _inside(trace),
        "near_ties": manifest.near_ties,
        "warned": list(manifest.warned),
        "sequences": trace.n_sequences,
        "sequences_by_task": _by_task(trace),
        "positions": trace.n_positions,
        **{f"{noun}_rows": trace.rows(table) for noun, table in _nouns(manifest.kind).items()},
        "mixed_rows": manifest.rows("mixed"),
        "mix": manifest.mix,
        "loops": found._asdict() if (found := looping(trace)) else None,
        "accepted": _summary(trace, "accepted", np.mean),
        "overlap": _summary(trace, "overlap", np.mean),
        "draft_entropy": _summary(trace, "draft_entropy", np.median),
        "target_entropy": _summary(trace, "target_entropy", np.median),
        "bytes": _sizes(trace),
        "uses": _uses(trace),
    }


_INFOS = ("target", "draft", "source", "outputs", "experts")


def _facts(info: ModelInfo | SourceInfo | OutputsInfo | ExpertsInfo | None) -> Any:
    return None if info is None else asdict(info)


def in_words(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What `describe` found, for people: names and what is said of them, in order."""
    yield from _origin(facts)
    yield from _limits(facts)
    yield from _counts(facts)
    if facts["bits"]:
        yield "rounded", f"statistics to {facts['bits']} significant bits"
    if facts["tokens"] == "ends":
        yield "left out", "draft tokens off the outputs' path, but for EOS"
    for i, use in enumerate(facts["uses"]):
        yield "good for" if i == 0 else "", use
    for i, (name, what) in enumerate(facts["drafters"].items()):
        yield "drafters" if i == 0 else "", f"{name}: {_drafter(what)}"


def _origin(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where the trace is, and what it was made by."""
    yield "trace", facts["path"] or "in memory"
    yield "hash", facts["hash"][:16]
    for name in ("target", "draft"):
        if facts[name] is not None:
            yield name, _model(facts[name])
    if facts["spec"]:
        yield "drafter", facts["spec"]
    if facts["source"] is not None:
        yield "imported from", _source(facts["source"])
        for note in facts["source"]["notes"]:
            yield "note", note
    if facts["outputs"] is not None:
        read = facts["outputs"]
        yield "outputs from", f"{read['file']} (sha256 {read['sha256'][:16]}): {read['remark']}"
    if facts["device"] is not None:
        yield "recorded on", f"{facts['device']}, {facts['dtype']}"


def _limits(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How tokens were drawn, and how far."""
    counts_alone = facts["kind"] in ("target", "log") and facts["source"] is not None
    if not counts_alone:  # how these were drawn is not known
        yield "sampler", f"{Sampler(**facts['sampler']).words}, seed {facts['seed']}"
    if facts["set_aside"]:
        yield (
            "not applied",
            f"the target's generation_config asks for {', '.join(facts['set_aside'])}",
        )
    if facts["coupling"] == "target" and facts["sampler"]["temperature"]:
        yield "coupling", "the target's own draws make the outputs, whatever the draft"
    deepest = "" if facts["kind"] == "target" else f"Γ = {facts['max_draft']}, "
    yield "limits", f"{deepest}T_max = {how_many(facts['max_new_tokens'], 'token')}"
    for line in facts["warned"]:
        yield "warned", line
    for token, outputs in facts["other_ends"].items():
        inside = f"it stands inside {outputs:,} of {how_many(facts['sequences'], 'output')}"
        yield "no end", f"token {token} ends texts elsewhere, but no output: {inside}"
    if ends := _ends(facts):
        yield "outputs end", ends


def _counts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How much there is, and its statistics."""
    tasks = facts["sequences_by_task"]
    names = ", ".join(f"{task or 'no task'} {n:,}" for task, n in tasks.items())
    yield "sequences", f"{facts['sequences']:,} ({names})" if tasks else "0"
    yield "positions", f"{facts['positions']:,}"
    off_path, _ = drafters.get(facts["kind"]).noun
    yield f"{off_path} rows", f"{facts[f'{off_path}_rows']:,}"
    if facts["accepted"] is not None:
        yield "accepted", f"{facts['accepted']:.1%} of draft tokens whose predecessors were"
    if facts["loops"] is not None and (said := Looping(**facts["loops"]).remark):
        yield "loops", said
    if facts["near_ties"]:
        share = facts["near_ties"] / facts["positions"]
        yield (
            "near ties",
            f"{share:.2%} of greedy tokens have another within the rounding of {facts['dtype']}:"
            " there engines may differ",
        )
    if facts["overlap"] is not None:
        yield "overlap", f"{facts['overlap']:.3f} on average"
    entropies = [
        f"{n} {facts[f'{n}_entropy']:.3f}"
        for n in ("draft", "target")
        if facts[f"{n}_entropy"] is not None
    ]
    if entropies:
        yield "entropy", f"{', '.join(entropies)} nats (medians)"
    sizes = {**facts["bytes"]}
    if attached := sum(drafter.get("bytes", 0) for drafter in facts["drafters"].values()):
        sizes["drafters"] = attached
    if sizes:
        total = sum(sizes.values())
        parts = ", ".join(f"{name} {size_in_words(size)}" for name, size in sizes.items())
        yield "size", f"{size_in_words(total)} ({parts})"


def _drafters(trace: Trace) -> dict[str, dict[str, Any]]:
    """The drafters that were attached, or what is wrong with them (`error`), by name."""
    found: dict[str, dict[str, Any]] = {}
    for name in trace.drafters:
        assert trace.path is not None  # there are none in memory
        try:
            drafter = load(trace.path, name)
        except TraceError as error:
            found[name] = {"error": str(error)}
            continue
        manifest = drafter.manifest
        found[name] = {
            "spec": manifest.spec,
            "made_of": made_of(manifest),
            "kind": manifest.kind,
            "max_draft": manifest.max_draft,
            "columns": list(manifest.lattice_columns),
            "times": "latency.parquet" in manifest.files,
            "bytes": sum(info.bytes for info in manifest.files.values()),
        }
    return found


def _drafter(facts: dict[str, Any]) -> str:
    """A drafter that was attached, for people."""
    if "error" in facts:
        return facts["error"]
    columns = f", {how_many(len(facts['columns']), 'column')}" if facts["kind"] == "lattice" else ""
    times = "times" if facts["times"] else "no times of its own"
    made = f"the target's own: {facts['made_of']}; " if facts["made_of"] else ""
    words = f"{made}{facts['kind']}, Γ = {facts['max_draft']}{columns}, {times}"
    return f"{facts['spec']} ({words}, {size_in_words(facts['bytes'])})"


def _nouns(kind: str) -> dict[str, str]:
    """What is counted off the path: of this kind, and of those that every trace is said to lack."""
    return dict([*(other.noun for other in drafters.BUILT_IN), drafters.get(kind).noun])


def _by_task(trace: Trace) -> dict[str, int]:
    """Sequences of each task, most first; those without one under ""."""
    return dict(Counter(task or "" for task in trace.sequences["task"].to_pylist()).most_common())


def _summary(trace: Trace, column: str, reduce: Any) -> float | None:
    if not trace.n_positions:
        return None
    table, rows = trace.manifest.drafter.outcomes(trace)
    if not trace.has(table, column):
        return None
    return float(reduce(trace.column(table, column).astype(np.float64)[rows]))


def _sizes(trace: Trace) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for name, info in sorted(trace.manifest.files.items()):
        sizes[name.split("/")[0]] += info.bytes
    return dict(sizes)


def _uses(trace: Trace) -> list[str]:
    """What the trace can be used for, beyond what any trace can."""
    manifest, files = trace.manifest, trace.manifest.files
    uses = []
    uses.append(manifest.drafter.uses(manifest))
    if manifest.sampler.greedy and manifest.kind not in ("target", "log"):
        uses.append("rules that drop drafted tokens (greedy)")
    if manifest.branch_target:
        uses.append("the target's view of branches")
    if manifest.hidden:
        uses.append("training heads on the draft's states")
    if found := manifest.experts:
        said = f"{found.per_token} of {found.count} experts in each of {found.layers} layers"
        uses.append(f"costs by the experts that a pass reads: a token reads {said}")
    if manifest.mix:
        rows, share = manifest.rows("mixed"), f"{manifest.mix:g} of the tokens the draft's"
        uses.append(f"training the acceptance head on {rows:,} mixed contexts ({share})")
    if "latency.parquet" in files or trace.latency() is not None:
        uses.append("measured costs")
        if table := trace.latency():
            known = conditions(table)
            uses += [f"their times: {known}", *([known.warning] if known.warning else [])]
    for name in sorted(files):
        if name.startswith("scores/"):
            uses.append(f"scores of {name.removeprefix('scores/').removesuffix('.parquet')}")
    return uses


def _model(model: dict[str, Any]) -> str:
    count = model["n_parameters"]
    scale, unit = next(((s, u) for s, u in ((1e9, "B"), (1e6, "M")) if count >= s), (1e3, "k"))
    revision = f"@{model['revision'][:8]}" if model["revision"] else ""
    return (
        f"{model['id']}{revision} ({model['architecture']}, {count / scale:.3g}{unit} parameters,"
        f" {model['dtype']}, weights {model['weights_sha256'][:8]})"
    )


def _source(source: dict[str, Any]) -> str:
    words = [f"{source['file']} (sha256 {source['sha256'][:8]})"]
    if source["drafter"]:
        words += [f"drafter {source['drafter']}", f"aligned as {source['align']}"]
    return ", ".join([*words, *([source["sample"]] if source["sample"] else [])])


def _inside(trace: Trace) -> dict[int, int]:
    """In how many outputs each of the manifest's `other_ends` stands."""
    if not trace.manifest.other_ends:
        return {}
    outputs = trace.sequences["output_tokens"].to_pylist()
    return {end: sum(end in output for output in outputs) for end in trace.manifest.other_ends}


def _ends(facts: dict[str, Any]) -> str:
    """Where outputs of a recorded model end, if that is not its own EOS token."""
    ids = ", ".join(map(str, facts["eos_token_ids"]))
    if facts["target"] is not None and not ids:
        return "by length only: no EOS token ended them"
    if facts["eos_from"] == "user":
        return f"at {ids}, as was asked for"
    if facts["eos_from"] == "tokenizer":
        return f"at the tokenizer's EOS, {ids}: the target's generation settings name none"
    return ""


def size_in_words(n_bytes: int) -> str:
    """A size for people: 1.2 MB."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} B"
