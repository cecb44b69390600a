"""Every class of causal LM that transformers maps, recorded and compared, or refused by name.

    python -m benchmarks.families [--only mistral,gpt2] [--without-proof]

Each class is built tiny (`benchmarks.tiny_models`), with windows of 8 tokens and original rotary
lengths of 16, and recorded greedily beside a noisy copy of itself, prompts of several lengths, one
and four in a batch. Outputs must be those of `generate`; tokens and entropies of all rows, on path
and of branches, must be those of one uncached forward pass over each whole text. A class that is
refused for a length that its configuration names is recorded again with longer ones; one that is
refused altogether is recorded token by token, its branches from clones of the draft's state; and
what is refused then, as a target alone, by its own `generate`.

A class whose recording differs is silent; the exit status is 1 if there is one, or a traceback.
`--without-proof` leaves out the proof at load, which all of this rests on: silent ones appear.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel

from benchmarks.tiny_models import EOS, MAPPED, VOCAB, WIDE, noisy, tiny_config, tiny_model
from traces.errors import RecordError
from traces.record.pair import Pair, make_alone
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof_own import PACKED
from traces.record.shard import ShardColumns, record_shard

LENGTHS = (4, 20, 7, 5)  # tokens of the prompts: below and past windows
PLAN = Plan(max_new_tokens=20, max_draft=5, eos_token_ids=(EOS,), branch_target=True)
_CLOSE = {torch.float64: 1e-5, torch.float32: 2e-3}  # nats, of entropies
_OWN_CLOSE = (
    1e-4  # likewise, of models read token by token: their states are in float32 in any dtype
)
RECORDS, UP_TO, REFUSED, NOT_BUILT = "records", "records up to a length", "refused", "not built"
ROLLED = "records, token by token"
ALONE = "records its target alone"
SILENT, TRACEBACK = "silent", "traceback"
OUTCOMES = RECORDS, UP_TO, ROLLED, ALONE, REFUSED, NOT_BUILT, SILENT, TRACEBACK


class Found(NamedTuple):
    """What came of one class."""

    kind: str
    class_name: str
    outcome: str
    reason: str = ""
    accepted: float | None = None
    n_branches: int = 0


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if a class is silent or raises."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="Model types, joined by commas.")
    options.add_argument(
        "--without-proof", action="store_true", help="Leave out the proof at load."
    )
    given = options.parse_args(argv)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = given.only.split(",") if given.only else list(MAPPED)
    if given.without_proof:
        Pair.prove = lambda *args: PACKED  # pyright: ignore
    found = []
    with redirect_stdout(sys.stderr):  # libraries print warnings
        for name in names:
            found.append(family(name, MAPPED[name]))
            print(*found[-1], sep=" | ")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}\n")
    print(*table(found), sep="\n")
    return int(any(one.outcome in (SILENT, TRACEBACK) for one in found))


def table(found: list[Found]) -> list[str]:
    """Lines of Markdown: what came of which model types, and why."""
    lines = ["| | classes | why | model types |", "|---|---|---|---|"]
    for outcome in OUTCOMES:
        whys: dict[str, list[str]] = {}
        for one in found:
            if one.outcome == outcome:
                whys.setdefault(_in_short(one), []).append(one.kind)
        for why, kinds in sorted(whys.items(), key=lambda row: (-len(row[1]), row[0])):
            lines.append(f"| {outcome} | {len(kinds)} | {why} | {', '.join(kinds)} |")
    totals = Counter(one.outcome for one in found)
    return [*lines, "", ", ".join(f"{outcome}: {totals[outcome]}" for outcome in OUTCOMES)]


def _in_short(found: Found) -> str:
    """A reason without positions, nor what a library says in detail."""
    why = re.sub(r" from text position \d+ on", "", found.reason)
    return re.sub(r"=\d+", "", re.sub(r"( fails| cache): .*", r"\1", why))


def family(kind: str, class_name: str) -> Found:
    """Build a class tiny, record it, compare."""
    try:
        config = tiny_config(kind)
        dtype, model = _built(config)
    except Exception as error:  # a class that wants other numbers, a library, a picture
        return Found(kind, class_name, NOT_BUILT, _said(error))
    found = _recorded(kind, class_name, model, dtype)
    passed = []
    while found.outcome == REFUSED and (named := re.search(r"go past ([\w, =]+)$", found.reason)):
        if named[1] in passed:
            return found
        passed.append(named[1])
        longer = {part.partition("=")[0].strip(): WIDE for part in named[1].split(",")}
        try:
            config = _longer(config, longer)
            dtype, model = _built(config)
        except Exception as error:
            return found._replace(reason=f"{found.reason}; longer: {_said(error)}")
        found = _recorded(kind, class_name, model, dtype)
    if found.outcome == REFUSED:
        return _rolled(found, model, dtype)
    if passed and found.outcome == RECORDS:
        return found._replace(outcome=UP_TO, reason=", ".join(passed))
    return found


def _built(config) -> tuple[torch.dtype, PreTrainedModel]:
    """A model in float64, or in float32 if it has no float64."""
    ids = torch.arange(1, 30)[None]
    try:
        model = tiny_model(config, torch.float64)
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
        return torch.float64, model
    except (RuntimeError, NotImplementedError):
        model = tiny_model(config, torch.float32)
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
        return torch.float32, model


def _longer(config, longer: dict[str, int]):
    """The configuration with these numbers, wherever they stand in it."""

    def walk(value, name=""):
        if isinstance(value, dict):
            return {key: walk(inner, key) for key, inner in value.items()}
        return longer[name] if name in longer and isinstance(value, int) else value

    given: Any = walk(config.to_dict())
    for name in ("transformers_version", "architectures", "model_type"):
        given.pop(name, None)
    return type(config)(**given)


def _recorded(
    kind: str, class_name: str, model: PreTrainedModel, dtype: torch.dtype, own: bool = False
) -> Found:
    prompts, plan = _prompts(), replace(PLAN, branch_target=not own)
    rows = [Prompt(str(n), "a", None, prompt) for n, prompt in enumerate(prompts)]
    accepted, n_branches = [], 0
    try:
        draft = noisy(model)
        pair = Pair(model, draft, None, VOCAB, (EOS,), own=own)
        judge = _Judge(model, draft, max(_CLOSE[dtype], _OWN_CLOSE if own else 0))
        for size in (4, 1):
            for first in range(0, len(rows), size):
                try:
                    shard = record_shard(pair, rows[first : first + size], first, plan)
                except RecordError as error:
                    return Found(kind, class_name, REFUSED, _short(str(error)))
                if wrong := judge.wrong(prompts, shard):
                    return Found(kind, class_name, SILENT, f"batch of {size}: {wrong}")
                accepted += shard.positions["accepted"].tolist()
                n_branches += len(shard.branches["depth"])
    except Exception as error:
        return Found(kind, class_name, TRACEBACK, _said(error))
    return Found(kind, class_name, RECORDS, "", float(np.mean(accepted)), n_branches)


class _Tokenizer:
    eos_token_id = EOS


def _rolled(found: Found, model: PreTrainedModel, dtype: torch.dtype) -> Found:
    """The same of a pair that is read token by token, which packed passes do not read."""
    own = _recorded(found.kind, found.class_name, model, dtype, own=True)
    if own.outcome == REFUSED:
        return _alone(found, model, dtype)
    if own.outcome != RECORDS:
        return own._replace(reason=f"token by token: {own.reason}")
    way = Pair(model, model, None, VOCAB, (EOS,), own=True).prove(0).draft.value
    return own._replace(outcome=ROLLED, reason=f"branches {way}; {found.reason}")


def _alone(found: Found, model: PreTrainedModel, dtype: torch.dtype) -> Found:
    """The same of a target alone: what was refused, or how it was recorded."""
    prompts = _prompts()
    rows = [Prompt(str(n), "a", None, prompt) for n, prompt in enumerate(prompts)]
    try:
        target = make_alone(model, _Tokenizer(), alone=True)
        shard = record_shard(target, rows, 0, replace(PLAN, branch_target=False, coupling="target"))
    except RecordError:
        return found
    except Exception as error:
        return found._replace(outcome=TRACEBACK, reason=_said(error))
    if wrong := _Judge(model, model, _CLOSE[dtype]).wrong_alone(prompts, shard):
        return found._replace(outcome=SILENT, reason=f"alone: {wrong}")
    return found._replace(outcome=ALONE)


def _prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(2, VOCAB - 1, (n,), generator=generator).tolist() for n in LENGTHS]


class _Judge:
    """Compares recorded rows with uncached passes over whole texts, which are kept."""

    def __init__(self, target: PreTrainedModel, draft: PreTrainedModel, close: float) -> None:
        self._models, self._close = {"target": target, "draft": draft}, close
        self._known: dict[tuple[str, tuple[int, ...]], tuple[np.ndarray, np.ndarray]] = {}
        self._generated: dict[tuple[int, ...], list[int]] = {}

    def wrong(self, prompts: list[list[int]], shard: ShardColumns) -> str:
        """What is wrong with a shard; "" if nothing is."""
        for number, output in zip(
            shard.sequences["sequence"], shard.sequences["output_tokens"], strict=True
        ):
            prompt = prompts[number]
            if output != self._generate(prompt):
                return "the output is not that of generate"
            mine = shard.positions["sequence"] == number
            rows = {name: column[mine] for name, column in shard.positions.items()}
            text, places = prompt + output, len(prompt) - 1 + np.arange(len(output))
            if not self._agrees(rows, text, places, "target_token"):
                return "rows on path differ from uncached passes"
            if not self._branches_agree(prompt, output, number, shard):
                return "rows of branches differ from uncached passes"
        return ""

    def wrong_alone(self, prompts: list[list[int]], shard: ShardColumns) -> str:
        """The same of a target alone, against a pass over each beginning of its outputs."""
        rows = shard.tables["target"]
        for number, output in enumerate(shard.sequences["output_tokens"]):
            if output != self._generate(prompts[number]):
                return "the output is not that of generate"
            mine = rows["target_entropy"][rows["sequence"] == number]
            for k, entropy in enumerate(mine):
                best, own = self._read("target", prompts[number] + output[:k])
                if best[-1] != output[k] or abs(own[-1] - entropy) > self._close:
                    return "rows differ from uncached passes"
        return ""

    def _branches_agree(
        self, prompt: list[int], output: list[int], number: int, shard: ShardColumns
    ) -> bool:
        on_path = shard.positions["sequence"] == number
        rejected = shard.positions["draft_token"][on_path]
        mine = shard.branches["sequence"] == number
        rows = {name: column[mine] for name, column in shard.branches.items()}
        for m in np.unique(rows["position"]):
            branch = {name: column[rows["position"] == m] for name, column in rows.items()}
            drafted = [int(rejected[m - 1]), *branch["draft_token"][:-1].tolist()]
            text = prompt + output[: m - 1] + drafted
            places = len(prompt) + m - 1 + np.arange(len(drafted))
            if not self._agrees(branch, text, places, None):
                return False
        return True

    def _agrees(
        self, rows: dict[str, np.ndarray], text: list[int], places: np.ndarray, token: str | None
    ) -> bool:
        same = []
        for model, name in (("draft", "draft_token"), ("target", token)):
            best, entropy = self._read(model, text)
            if name is not None:
                same.append(np.array_equal(best[places], rows[name]))
            if f"{model}_entropy" in rows:
                apart = np.abs(entropy[places] - rows[f"{model}_entropy"])
                same.append(bool((apart < self._close).all()))
        return all(same)

    def _read(self, model: str, text: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest token behind each of a text's, and the entropy there."""
        key = model, tuple(text)
        if key not in self._known:
            with torch.inference_mode():
                ids = torch.tensor([text])
                logits = self._models[model](input_ids=ids, use_cache=False).logits[0, :, :VOCAB]
            log_p = logits.double().log_softmax(-1)
            entropy = -(log_p.exp() * log_p).sum(-1)
            self._known[key] = logits.argmax(-1).numpy(), entropy.numpy()
        return self._known[key]

    def _generate(self, prompt: list[int]) -> list[int]:
        key = tuple(prompt)
        if key not in self._generated:
            ids = torch.tensor([prompt])
            self._models["target"].generation_config = GenerationConfig()  # which is left aside
            made = self._models["target"].generate(  # pyright: ignore
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(
                    max_new_tokens=PLAN.max_new_tokens,
                    do_sample=False,
                    eos_token_id=EOS,
                    pad_token_id=EOS,
                ),
            )
            self._generated[key] = made[0, len(prompt) :].tolist()  # pyright: ignore
        return self._generated[key]


def _short(line: str) -> str:
    """Why a class is refused, without its name."""
    return line.partition(" cannot be recorded: ")[2].replace("|", "/") or line


def _said(error: BaseException) -> str:
    said = " ".join(str(error).split())[:140]
    return f"{type(error).__name__}: {said}".replace("|", "/")


if __name__ == "__main__":
    sys.exit(main())
