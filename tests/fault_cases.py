"""Writers that are stopped at each of their calls: what they do in a folder, what is there then."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from pyarrow import fs
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from trace_files import columns, record, trace

from simkit.cli.running import opened
from simkit.heads import files as heads
from simkit.heads import registry
from simkit.live.log import LiveLog, LiveRow, read
from traces import schema, scores, stores
from traces.attach import registry as drafters
from traces.attach.run import attach, detach
from traces.errors import TraceError
from traces.manifest import read_manifest
from traces.outputs import write_atomic, write_together
from traces.recipes.reference.net import save_weights
from traces.recipes.reference.tokenizer import save as save_tokenizer
from traces.recipes.reference.train import save_checkpoint
from traces.trace import load
from traces.validate import validate
from traces.writer import TraceWriter, add_file, save

OLD, NEW = b"old" * 1000, b"new" * 2000
NONE = "nothing"
NAMES = ("x.png", "x.svg", "x.parquet")


@cache
def source():
    return trace(n=3)


def samples(repeats: int) -> pa.Table:
    """Timing samples of two kinds of passes."""
    rows = [
        {"component": name, "tokens_in": 1, "context_len": 8, "batch_size": 1, "seconds": 0.5}
        | {"dtype": "float32", "device": "cpu", "engine": "eager", "repeat": repeat}
        for repeat in range(repeats)
        for name in ("draft", "target")
    ]
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


def recording(folder: Path) -> None:
    """What `simkit record --resume` does with the folder."""
    header = replace(source().manifest, batch_size=2)
    with TraceWriter(folder / "t", header, resume=True) as writer:
        try:
            for shard in sorted(set(range(writer.n_shards)) - writer.done):
                writer.write_shard(shard, *columns(source(), writer.shard_sequences(shard)))
            writer.finish()
        except BaseException:
            writer.discard_if_empty()
            raise


def saved(folder: Path) -> None:
    save(source(), folder / "t", batch_size=2)


def traced(folder: Path) -> None:
    record(folder / "t", source())
    add_file(folder / "t", "latency.parquet", samples(1))


def latency(folder: Path) -> None:
    add_file(folder / "t", "latency.parquet", samples(2))


def attached(folder: Path) -> None:
    """What `simkit attach --resume` does with the folder."""
    attach(load(folder / "t"), drafters.parse("suffix(shared=true)"), resume=True)


def with_drafters(folder: Path) -> None:
    traced(folder)
    attached(folder)
    attach(load(folder / "t"), drafters.parse("ngram(least=1)"))


def detached(folder: Path) -> None:
    """What `simkit detach` does with the folder."""
    detach(load(folder / "t"), "suffix")


def of_detached(folder: Path) -> str:
    """A drafter is there, whole, or it is not; the recording and another are as they were."""
    assert validate(folder / "t") == []
    there = load(folder / "t").drafters
    assert "ngram" in there
    return "old" if "suffix" in there else "new"


def score(folder: Path) -> None:
    there = load(folder / "t")
    values = scores.RowScores(np.ones(there.n_positions), np.ones(there.n_branch_rows))
    scores.save(folder / "t", there, "pacer", values, {})


def earlier(folder: Path) -> None:
    for name in NAMES:
        write_atomic(folder / name, OLD)


def together(folder: Path) -> None:
    write_together({folder / name: NEW for name in NAMES})


def alone(folder: Path) -> None:
    write_atomic(folder / "below" / "x.html", NEW)


def head(weight: float):
    options = registry.get("specdecpp").settle({"layers": 1})
    module = heads.build("specdecpp", 4, options)
    for value in module.parameters():
        torch.nn.init.constant_(value, weight)
    return heads.Head("specdecpp", 4, options, module, {"weight": weight})


def old_head(folder: Path) -> None:
    heads.save(head(0.25), folder / "h.safetensors")


def new_head(folder: Path) -> None:
    heads.save(head(0.5), folder / "h.safetensors")


def decode(log: LiveLog, policy: str) -> None:
    for n in range(3):
        log.add(0, 0, policy, n, [LiveRow(1, 1, 0, "sequence", "", 0, 1, 9, 1, 0.5)])


def old_log(folder: Path) -> None:
    with LiveLog(folder / "live.parquet", every_s=0) as log:
        decode(log, "old")


def new_log(folder: Path) -> None:
    bench = SimpleNamespace(facts={"device": "cpu"})
    with opened(folder / "live.parquet", bench) as log:  # type: ignore[arg-type]
        log.every_s = 0
        decode(log, "new")


def traced_log(folder: Path) -> None:
    traced(folder)
    into_trace(folder, "old")


def into_trace(folder: Path, policy: str = "new") -> None:
    bench = SimpleNamespace(facts={"device": "cpu"})
    with opened(folder / "t.live.parquet", bench, folder / "t") as log:  # type: ignore[arg-type]
        log.every_s = 0
        decode(log, policy)


def weights(folder: Path, value: float = 0.5) -> None:
    save_weights(net(value), folder / "w.safetensors")


def old_weights(folder: Path) -> None:
    weights(folder, 0.25)


def checkpoint(folder: Path, value: float = 0.5) -> None:
    made = net(value)
    save_checkpoint(folder / "net.pt", made, torch.optim.AdamW(made.parameters()), 1, 2)


def old_checkpoint(folder: Path) -> None:
    checkpoint(folder, 0.25)


def net(value: float) -> torch.nn.Module:
    """What training saves of a network, with one weight."""
    made = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(made.weight, value)
    return made


def tokenizer(folder: Path) -> None:
    save_tokenizer(Tokenizer(WordLevel({"a": 0}, unk_token="a")), folder)


def of_trace(folder: Path) -> str:
    """What is at a place for a trace: nothing, or a whole one."""
    try:
        load(folder / "t")
    except TraceError as error:
        assert any(words in str(error) for words in ("no such", "has no manifest", "incomplete"))
        return NONE
    assert validate(folder / "t") == []
    return "new"


def of_latency(folder: Path) -> str:
    assert validate(folder / "t") == []
    rows = load(folder / "t").extra("latency.parquet").num_rows
    return {2: "old", 4: "new"}[rows]


def of_attached(folder: Path) -> str:
    """A drafter that can be read has all of its drafts and its times."""
    assert validate(folder / "t") in ([], [unfinished(folder)])
    try:
        there = load(folder / "t", "suffix")
    except TraceError as error:
        assert any(words in str(error) for words in ("is attached", "incomplete"))
        return NONE
    assert there.own_latency().num_rows == there.n_sequences
    return "new"


def unfinished(folder: Path) -> str | None:
    """What is said of a drafter whose run was stopped."""
    try:
        load(folder / "t", "suffix")
    except TraceError as error:
        return str(error)
    return None


def of_scores(folder: Path) -> str:
    assert validate(folder / "t") == []
    there = load(folder / "t")
    if there.extra("scores/pacer.parquet") is None:
        return "old"
    assert scores.load(there, "pacer").path.min() == 1
    return "new"


def of_files(folder: Path) -> str:
    found = {(folder / name).read_bytes() for name in NAMES}
    assert found <= {OLD, NEW}
    return "old" if found == {OLD} else "new" if found == {NEW} else "some"


def of_file(folder: Path) -> str:
    file = folder / "below" / "x.html"
    assert not file.exists() or file.read_bytes() == NEW
    return "new" if file.exists() else NONE


def of_head(folder: Path) -> str:
    found = heads.load(folder / "h.safetensors")
    [weight] = {float(value.detach().min()) for value in found.module.parameters()}
    assert found.facts == {"weight": weight}
    return {0.25: "old", 0.5: "new"}[weight]


def of_log(folder: Path) -> str:
    [policy] = set(read(folder / "live.parquet")["policy"].to_pylist())
    for part in folder.glob("live.partial*.parquet"):
        assert set(read(part)["policy"].to_pylist()) == {"new"}
    return policy


def of_trace_log(folder: Path) -> str:
    assert validate(folder / "t") == []
    [policy] = set(load(folder / "t").extra("live.parquet")["policy"].to_pylist())
    for file in folder.glob("t.live*.parquet"):
        assert set(read(file)["policy"].to_pylist()) == {"new"}
    return policy


def of_weights(folder: Path) -> str:
    [value] = load_file(folder / "w.safetensors").values()
    return {0.25: "old", 0.5: "new"}[float(value)]


def of_checkpoint(folder: Path) -> str:
    found = torch.load(folder / "net.pt", weights_only=True)
    assert (found["step"], found["steps"]) == (1, 2)
    return {0.25: "old", 0.5: "new"}[float(found["net"]["weight"])]


def of_tokenizer(folder: Path) -> str:
    names = ("tokenizer.json", "tokenizer_config.json")
    there = [json.loads((folder / n).read_text()) for n in names if (folder / n).exists()]
    return {0: NONE, 1: "some", 2: "new"}[len(there)]


def store(folder: Path) -> None:
    record(folder / "store" / "t", source())


def copied(folder: Path) -> None:
    """What reading a trace by its URL does with the copies."""
    system = fs.SubTreeFileSystem(str(folder / "store"), fs.LocalFileSystem())
    with (
        patch.object(stores, "_system", lambda url: (system, "t")),
        patch.dict(os.environ, {stores.FOLDER: str(folder / "copies")}),
    ):
        place = stores.open_url("s3://t")
        stores.bring(place, read_manifest(place).files)


def of_copied(folder: Path) -> str:
    """What is there of a copy under its own name is whole."""
    wanted, found = folder / "store" / "t", [*folder.glob("copies/*/t")]
    for file in (file for place in found for file in place.rglob("[!.]*") if file.is_file()):
        assert file.read_bytes() == (wanted / file.relative_to(found[0])).read_bytes()
    names = [name for name in read_manifest(wanted).files if found and (found[0] / name).exists()]
    return "new" if len(names) == len(read_manifest(wanted).files) else NONE


class Writer(NamedTuple):
    """A writer that is stopped.

    Attributes:
        before: the function that makes what is there before; None: nothing.
        old: what `look` then finds.
        look: says what is there: the old, the new, or some files of each.
        keeps: names that it may leave for the next run to take up: shards, parts of a log.
    """

    before: str | None
    old: str
    look: Callable[[Path], str]
    keeps: str | None = None


WRITERS = {
    "recording": Writer(None, NONE, of_trace, r"t(/.*)?"),
    "saved": Writer(None, NONE, of_trace),
    "latency": Writer("traced", "old", of_latency),
    "attached": Writer("traced", NONE, of_attached, r"t/drafters(/.*)?"),
    "detached": Writer("with_drafters", "old", of_detached),
    "score": Writer("traced", "old", of_scores),
    "together": Writer("earlier", "old", of_files),
    "alone": Writer(None, NONE, of_file),
    "new_head": Writer("old_head", "old", of_head),
    "new_log": Writer("old_log", "old", of_log, r"live\..*"),
    "into_trace": Writer("traced_log", "old", of_trace_log, r"t\.live\..*"),
    "weights": Writer("old_weights", "old", of_weights),
    "checkpoint": Writer("old_checkpoint", "old", of_checkpoint),
    "tokenizer": Writer(None, NONE, of_tokenizer),
    "copied": Writer("store", NONE, of_copied, r"copies(/.*)?"),
}


def names(folder: Path) -> list[str]:
    """All files and folders; logs of runs that broke off are extra."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if ".partial" not in name)
