"""Record a pair, or a target alone: what `simkit record` and `simkit.record` share."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from simkit.cluster import Job, joined, node
from traces import reading
from traces.errors import RecordError, SimkitWarning, TraceError
from traces.loops import beside_itself
from traces.messages import how_many
from traces.sampler import Sampler

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from traces.engine_outputs import EngineOutput
    from traces.manifest import OutputsInfo
    from traces.record.chat import Chat
    from traces.record.estimate import SizeEstimate
    from traces.record.pair import Alone, Pair
    from traces.record.plan import Plan
    from traces.record.prompts import Prompt, PromptRow
    from traces.record.recorder import Batch
    from traces.record.shard import ShardColumns
    from traces.trace import Trace

    Rows = list[PromptRow] | list[EngineOutput]

Asked = TypeVar("Asked", bound="DataclassInstance")
_AT_ONCE = 32  # tokens of known outputs in a pass
NOTE = ".asked.json.tmp"
"""Where an unfinished recording says what it was asked for: named like what a writer leaves behind,
so it goes away as those files do, when the recording is finished or given up."""
_PLACES = ("target", "draft", "prompts", "outputs")  # of files and folders


@dataclass(frozen=True)
class RecordRequest:
    """What is asked for, under the names of the command's options.

    Attributes:
        target: the target model, a local folder or hub id.
        prompts: a JSON Lines file; None where they are no file.
        draft: the draft model; without one the target is recorded alone, and drafters are attached
            later.
        max_new_tokens: longest output, T_max.
        ignore_eos: outputs go on behind EOS, all to T_max.
        max_draft: deepest draft to record, Γ.
        temperature: 0 is greedy.
        top_k: 0 keeps all tokens.
        top_p: 1 keeps all tokens.
        draft_temperature: of the draft alone; 0 proposes its likeliest token.
        seed: of the keyed draws.
        device: "auto", "cpu", "cuda", "cuda:1" ….
        dtype: "float32", "float64", "bfloat16" or "float16".
        batch_size: prompts run together, one shard.
        revision: hub revision of the target, or "TARGET,DRAFT".
        hidden: keep the draft's states.
        experts: keep which experts the target reads for each token, of a mixture of experts.
        branch_target: the target's view of branch rows too.
        mix: share of the draft's own tokens in mixed contexts to record, for an acceptance head.
        coupling: what sampled outputs are drawn with: "draft" or "target"; None is "draft" where
            there is a draft model.
        kernel: reduce logits with the Triton kernel; None where CUDA and Triton are there.
        outputs: a JSON Lines file of what an engine answered, with its prompts, as token ids,
            which the target then reads (docs/record.md); the sampler is the one that it was drawn
            with, and `max_new_tokens` the longest of them unless given.
        eos: token ids that end outputs, in place of the model's; "+7" adds 7 to these.
        system: message that comes first in chats that have none.
        chat_template_kwargs: arguments of the chat template, as the JSON of an object.
    """

    target: str
    prompts: str | None
    draft: str | None = None
    max_new_tokens: int = 256
    ignore_eos: bool = False
    max_draft: int = 40
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    draft_temperature: float | None = None
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    batch_size: int = 8
    revision: str | None = None
    hidden: bool = False
    experts: bool = False
    branch_target: bool = False
    mix: float = 0.0
    coupling: str | None = None
    kernel: bool | None = None
    outputs: str | None = None
    eos: list[str] | None = None
    system: str | None = None
    chat_template_kwargs: str | None = None

    @property
    def chat(self) -> Chat:
        """What all chats are given.

        Raises:
            RecordError: the template's arguments are no JSON object.
        """
        from traces.record.chat import Chat

        return Chat.of(self.chat_template_kwargs, self.system)

    def plan(self) -> Plan:
        """The settings of the recording, as far as no model is needed for that.

        Raises:
            RecordError: a number is out of range, or there is no draft model for what is asked.
        """
        from traces.record.plan import Plan

        sampler = Sampler(self.temperature, self.top_k, self.top_p, self.draft_temperature)
        names = ("seed", "max_new_tokens", "max_draft", "batch_size", "hidden", "experts")
        given = {name: getattr(self, name) for name in (*names, "branch_target", "mix")}
        followed = self.outputs is not None
        own = "draft" if self.draft and not followed else "target"
        if followed and self.coupling == "draft":
            raise RecordError(
                "--coupling draft cannot be used with --outputs, which gives the outputs"
            )
        plan = Plan(
            sampler,
            **given,
            coupling=cast(Any, self.coupling or own),
            by_engine=followed,
            at_once=_AT_ONCE if followed else 1,
        )
        if self.draft is None:
            _check_alone(plan, bool(self.kernel))
        return plan

    def load(self) -> tuple[Pair | Alone, Plan]:
        """The models, and the settings with what these say.

        Raises:
            RecordError: a model cannot be loaded, or the two do not fit.
        """
        try:
            from traces.record.generation import Ends, changed_ends
            from traces.record.pair import Alone, load_pair, load_target
            from traces.record.statistics_triton import chosen
        except ModuleNotFoundError as error:
            raise RecordError(
                f"running models needs {error.name}: pip install 'draft-simkit[record]'"
            ) from None
        how = self.device, self.dtype, self.revision
        if self.draft is None:
            pair: Pair | Alone = load_target(self.target, *how, alone=True)
        else:
            known = self.outputs is not None
            pair = load_pair(self.target, self.draft, *how, known=known, own=True)
        # The kernel reduces pairs of rows.
        kernel = not isinstance(pair, Alone) and chosen(pair, self.kernel)
        changed = changed_ends(Ends(pair.eos_token_ids, "model"), self.eos, pair.vocab_size)
        ends = () if self.ignore_eos else changed.ids
        return pair, replace(self.plan(), eos_token_ids=ends, kernel=kernel)


def _check_alone(plan: Plan, kernel: bool) -> None:
    """Refuse what asks for a draft model where there is none."""
    asked = {"--hidden": plan.hidden, "--branch-target": plan.branch_target, "--mix": plan.mix}
    asked |= {"--experts": plan.experts, "--kernel": kernel}
    for option, given in asked.items():
        if given:
            raise RecordError(f"{option} is about a draft model: give --draft")
    if plan.coupling == "draft" and not plan.sampler.greedy:
        raise RecordError("--coupling draft draws outputs with a draft model: give --draft")


class CutPrompts(NamedTuple):
    """Prompts as tokens, and what the manifest says of how they were cut."""

    prompts: list[Prompt]
    template_sha256: str | None = None
    warned: tuple[str, ...] = ()


class Listening(NamedTuple):
    """Who is told how far a recording is; see `traces.record.recorder.record`."""

    on_token: Callable[[int], None] = lambda n: None
    on_shard: Callable[[int], None] = lambda n: None
    on_size: Callable[[SizeEstimate], None] | None = None


def run(
    asked: RecordRequest,
    loaded: tuple[Pair | Alone, Plan],
    cut: CutPrompts,
    out: Path,
    resume: bool,
    told: Listening,
    ray: str | None = None,
) -> int:
    """Record; returns how many output tokens. See `record`."""
    from traces.differences import settings_of
    from traces.record.generation import other_ends, tell
    from traces.record.header import make_header
    from traces.record.recorder import record as write

    pair, plan = loaded
    prompts = cut.prompts
    others = other_ends(pair.tokenizer, plan.eos_token_ids, cut.template_sha256 is not None)
    tell(pair.target, pair.tokenizer, plan, asked.ignore_eos, others)
    for line in cut.warned:
        warnings.warn(line, SimkitWarning, stacklevel=3)
    header = replace(
        make_header(pair, prompts, plan, _whose(asked)),
        other_ends=others if plan.eos_token_ids else (),
        template_sha256=cut.template_sha256,
        warned=cut.warned,
        settings=settings_of(asked.target, asked.draft),
    )
    if asked.eos and plan.eos_token_ids:
        header = replace(header, eos_from="user")
    if same := beside_itself(header):
        warnings.warn(same, SimkitWarning, stacklevel=3)
    with joined(ray) as cluster:
        spread = partial(cluster.map, _far(asked, pair)) if cluster else None
        on_size = None if spread else told.on_size  # which is of one process
        return write(
            pair, prompts, out, plan, header, resume,
            told.on_token, told.on_shard, lambda: keep_note(asked, out), on_size, spread,
        )  # fmt: skip


def _whose(asked: RecordRequest) -> OutputsInfo | None:
    """The file of outputs that are followed."""
    from traces.manifest import OutputsInfo
    from traces.reading import file_hash

    if asked.outputs is None:
        return None
    return OutputsInfo(Path(asked.outputs).name, file_hash(asked.outputs, RecordError))


def _far(asked: RecordRequest, pair: Pair | Alone) -> Job:
    """Shards as tasks: a worker loads the models once, on a GPU of its own where there are any.

    On a CPU a worker takes as many threads as this process, since sums hang on their number.
    """
    from traces.record.pair import place_of

    device, threads = place_of(pair)
    there = replace(_absolute(asked), device=device)
    gpu = device == "cuda"
    return Job(partial(_loaded, there, threads), _shard, 1 if gpu else threads, int(gpu))


def _loaded(asked: RecordRequest, threads: int) -> tuple[Pair | Alone, Plan]:
    """The models, in a worker."""
    from traces.record.pair import quiet, take_threads

    quiet()
    take_threads(threads)
    for place in (asked.target, asked.draft):
        if place and Path(place).is_absolute() and not Path(place).exists():
            raise RecordError(f"{place}: no such model on {node()}, where a worker runs")
    return asked.load()


def _shard(loaded: tuple[Pair | Alone, Plan], batch: Batch) -> ShardColumns:
    from traces.record.shard import record_shard

    pair, plan = loaded
    start, prompts = batch
    return record_shard(pair, prompts, start, plan)


def keep_note(asked: DataclassInstance, folder: Path) -> None:
    """Keep what was asked for beside the shards until all of them are there."""
    from traces.outputs import write_atomic

    write_atomic(folder / NOTE, json.dumps(asdict(_absolute(asked)), indent=1).encode())


def _absolute(asked: Asked) -> Asked:
    """With folders and files by their full names, wherever one goes on; hub ids as they are."""
    there = {name: getattr(asked, name, None) for name in _PLACES}
    full = {k: str(Path(v).resolve()) for k, v in there.items() if v and Path(v).exists()}
    return replace(asked, **full)


def asked_before(out: Path, given: Mapping[str, Any]) -> RecordRequest | None:
    """What the unfinished recording in a folder was asked for; None if it does not say.

    Args:
        out: the folder.
        given: options that are given again, by name.

    Raises:
        RecordError: one of them is not what was asked for.
    """
    try:
        known = json.loads((out / NOTE).read_text(encoding="utf-8"))
        asked = RecordRequest(**known)
    except (OSError, ValueError, TypeError):
        return None
    again = _absolute(replace(asked, **given))
    for field in fields(asked):
        now, before = getattr(again, field.name), getattr(asked, field.name)
        if now != before:
            raise RecordError(
                f"{_option(field.name, now)}: the recording in {out} was begun with"
                f" {_option(field.name, before)}"
            )
    return asked


def _option(name: str, value: Any) -> str:
    """An option as it is written."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return f"no {option}"
    return option if value is True else f"{option} {value}"


def is_whole(out: Path) -> bool:
    """Whether a folder has a finished trace."""
    from traces.manifest import read_manifest

    try:
        return read_manifest(out).complete
    except TraceError:
        return False


def record(
    target: str | None = None,
    prompts: str | Path | Iterable[str | Mapping[str, Any]] | None = None,
    out: str | Path = "",
    draft: str | None = None,
    *,
    max_new_tokens: int | None = None,
    ignore_eos: bool | None = None,
    max_draft: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    draft_temperature: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int | None = None,
    revision: str | None = None,
    hidden: bool | None = None,
    experts: bool | None = None,
    branch_target: bool | None = None,
    mix: float | None = None,
    coupling: str | None = None,
    kernel: bool | None = None,
    outputs: str | Path | None = None,
    eos: list[str] | None = None,
    system: str | None = None,
    chat_template_kwargs: str | Mapping[str, Any] | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    ray: str | None = None,
) -> Trace:
    """Run a draft/target pair, or a target alone, on prompts and write a trace.

    Other args are those of `RecordRequest`, which has their defaults; None is not given. Prompts
    may also be texts, or objects as a file's lines hold them (docs/record.md). `out` is the new
    trace's folder. With `resume` the recording in it goes on, if there is one; what is given must
    agree. `progress` is told how many tokens are done, and of how many; `ray`: a cluster's address.

    Raises:
        RecordError: prompts or models cannot be recorded, a number is out of range, or torch or
            transformers is not installed.
        TraceError: the folder cannot be written, or holds another recording.

    >>> simkit.record(f"{MODELS}/target", ["def add(a, b):"], "new", max_new_tokens=8).n_positions
    8
    """
    named = dict(locals())
    given = {field.name: named[field.name] for field in fields(RecordRequest)}
    return _recorded(given, Path(out) if str(out) else None, resume, progress, ray)


def _recorded(
    options: dict[str, Any],
    folder: Path | None,
    resume: bool,
    progress: Callable[[int, int], None] | None,
    ray: str | None,
) -> Trace:
    """See `record`; of options by name."""
    from traces.trace import load

    if folder is None:
        raise RecordError("out is missing: name the folder of the new trace")
    if options["outputs"] is not None:
        options["outputs"] = str(options["outputs"])
    if isinstance(options["chat_template_kwargs"], Mapping):
        options["chat_template_kwargs"] = json.dumps(options["chat_template_kwargs"])
    rows, prompts = None, options["prompts"]
    if isinstance(prompts, Path):
        options["prompts"] = str(prompts)
    elif prompts is not None and not isinstance(prompts, str):
        from traces.record.prompts import rows_of

        rows, options["prompts"] = rows_of(prompts), None
    given = {name: value for name, value in options.items() if value is not None}
    if resume and not given and rows is None and is_whole(folder):
        return load(folder)
    asked, rows = prepare(folder, given, resume, rows)
    loaded = asked.load()
    cut = cut_rows(asked, rows, *loaded)
    told = _told(progress, len(cut.prompts), asked.max_new_tokens)
    run(asked, loaded, cut, folder, resume, told, ray)
    return load(folder)


def _told(progress: Callable[[int, int], None] | None, n: int, t_max: int) -> Listening:
    """How a function of what is done, and of how much, is told of tokens and shards."""
    if progress is None:
        return Listening()
    done = [0]

    def at(tokens: int) -> None:
        done[0] = tokens
        progress(tokens, n * t_max)

    return Listening(lambda more: at(done[0] + more), lambda prompts: at(prompts * t_max))


def prepare(
    out: Path, given: Mapping[str, Any], resume: bool, rows: list[PromptRow] | None = None
) -> tuple[RecordRequest, Rows]:
    """What is asked for, all of it checked that needs no model.

    Args:
        out: folder of the trace.
        given: the options that are given, by name.
        resume: go on with the recording in `out`, which may know the other options.
        rows: of prompts that are no file.

    Raises:
        RecordError: an option or a prompt is missing or wrong.
    """
    from traces.record.prompts import read_rows

    begun = asked_before(out, given) if resume else None
    asked = begun
    if asked is None:
        more = f"{out} does not have the options: " if resume else ""
        if given.get("target") is None:
            raise RecordError(f"{more}--target is missing: give the target model")
        has_prompts = given.get("prompts") is not None or rows is not None
        if has_prompts and given.get("outputs") is not None:
            raise RecordError("--outputs has its own prompts: leave out --prompts")
        if not has_prompts and given.get("outputs") is None:
            raise RecordError(f"{more}--prompts is missing: give a JSON Lines file")
        asked = RecordRequest(**{"prompts": None, **given})
    if asked.ignore_eos and asked.eos:
        raise RecordError("give --ignore-eos or --eos, not both")
    chat = asked.chat
    if asked.outputs is not None:
        if chat.system or chat.arguments:
            raise RecordError(
                "--outputs has its own prompts: leave out --system and --chat-template-kwargs"
            )
        return _followed(asked, "max_new_tokens" in given, begun is not None)
    asked.plan()
    if rows is None:
        if asked.prompts is None:
            raise RecordError(
                f"the prompts of the recording in {out} did not come from a file: give them again"
            )
        if not Path(asked.prompts).is_file():
            reading.refuse_url(asked.prompts, RecordError)
            raise RecordError(f"{asked.prompts}: no such prompts file")
        rows = read_rows(asked.prompts)
    if (chat.system or chat.arguments) and not any("messages" in row.value for row in rows):
        raise RecordError("--system and --chat-template-kwargs are for prompts of messages")
    return asked, rows


def _followed(asked: RecordRequest, is_limited: bool, is_begun: bool) -> tuple[RecordRequest, Rows]:
    """What is asked for, and the outputs that are to be read.

    T_max is that of the recording that is begun, or given, or else the longest output.
    """
    from traces.engine_outputs import check_ids, read

    assert asked.outputs is not None
    found = read(asked.outputs, RecordError)
    check_ids(found, RecordError)
    longest = max(found, key=lambda one: len(one.output))
    n = len(longest.output)
    if not is_limited and not is_begun:
        asked = replace(asked, max_new_tokens=n)
    elif is_limited and n > asked.max_new_tokens:
        raise RecordError(
            f"{longest.where}: the output has {how_many(n, 'token')}, more than"
            f" --max-new-tokens {asked.max_new_tokens}"
        )
    asked.plan()
    return asked, found


def cut_rows(asked: RecordRequest, rows: Rows, pair: Pair | Alone, plan: Plan) -> CutPrompts:
    """The prompts as the pair's tokens, and what was answered where that is known."""
    from traces.record.chat import heard, template_hash
    from traces.record.engine_prompts import prompts_of
    from traces.record.prompts import cut

    if plan.by_engine:
        found = cast("list[EngineOutput]", rows)
        return CutPrompts(prompts_of(found, pair.tokenizer, pair.vocab_size, plan.eos_token_ids))
    lines = cast("list[PromptRow]", rows)
    with heard() as said:
        prompts = cut(lines, pair.tokenizer, pair.vocab_size, asked.chat)
    is_chat = any("messages" in row.value for row in lines)
    return CutPrompts(prompts, template_hash(pair.tokenizer) if is_chat else None, tuple(said))
