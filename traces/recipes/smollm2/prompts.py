"""The prompts that a real model is recorded on: Spec-Bench and HumanEval, as chats.

``prompts.jsonl`` holds all of them, one a line, with ``id``, ``task`` (Spec-Bench's category, or
``humaneval``), ``messages``, ``source`` and ``licence``. ``python -m traces.recipes.smollm2.prompts
SPEC_BENCH HUMANEVAL -o FILE`` writes it from the two published files. The second turn of MT-Bench
is a chat too: what the model answered to the first turn, greedily, stands between the two
questions; ``--answers`` names the recording (of this file's first turns) that has it.

``python -m traces.recipes.smollm2.prompts --recorded -o FILE`` writes those that are recorded, from
``prompts.jsonl``: all chats of MT-Bench (eight categories of 20), 20 of each other category and 40
of HumanEval, the shortest first: those that run together are alike. Drafters are trained on answers
to the rest, see ``answers``, and so are heads: ``--rest`` writes it. ``--long`` instead writes
those of the long recording, the first question of each of MT-Bench's categories, and ``--ladder``
those on which drafts of many qualities are recorded, the first four of each task. On answers to
``--beside-ladder``, the other recorded ones, heads of those drafts are trained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from traces.outputs import write_atomic
from traces.recipes.command import parser_of

PROMPTS = Path(__file__).parents[2] / "smollm2" / "prompts.jsonl"
SPEC_BENCH = {"source": "Spec-Bench (hemingkx/Spec-Bench)", "licence": "Apache-2.0"}
HUMANEVAL = {"source": "HumanEval (openai/human-eval)", "licence": "MIT"}
N_RECORDED = {"humaneval": 40}  # prompts of a task that are recorded; of the others ...
N_RECORDED_ELSE = 20
N_LADDER = 4  # prompts of a task on which the ladder of drafts is recorded
Chat = list[dict[str, str]]


def load(file: Path = PROMPTS) -> list[dict]:
    """All prompts, in the file's order."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def recorded(prompts: list[dict]) -> list[dict]:
    """The first of each task, which are recorded."""
    return first(prompts, lambda task: N_RECORDED.get(task, N_RECORDED_ELSE))


def first(prompts: list[dict], n_of: Callable[[str], int]) -> list[dict]:
    """The first prompts of each task, as many as `n_of` says."""
    seen: Counter[str] = Counter()
    some = []
    for prompt in prompts:
        seen[prompt["task"]] += 1
        if seen[prompt["task"]] <= n_of(prompt["task"]):
            some.append(prompt)
    return some


def ladder(prompts: list[dict]) -> list[dict]:
    """The first four of each task."""
    return first(prompts, lambda task: N_LADDER)


def beside_ladder(prompts: list[dict]) -> list[dict]:
    """Those that are recorded, but not on the ladder."""
    ids = {prompt["id"] for prompt in ladder(prompts)}
    return [prompt for prompt in recorded(prompts) if prompt["id"] not in ids]


def long(prompts: list[dict]) -> list[dict]:
    """The first question of each category of MT-Bench, which has chats of two turns."""
    first: dict[str, dict] = {}
    for prompt in prompts:
        if prompt["id"].endswith("-1"):
            first.setdefault(prompt["task"], prompt)
    return list(first.values())


def by_length(prompts: list[dict]) -> list[dict]:
    """The shortest chats first."""
    return sorted(prompts, key=lambda line: sum(len(m["content"]) for m in line["messages"]))


def to_train_on(prompts: list[dict]) -> list[dict]:
    """The prompts that are not recorded."""
    ids = {prompt["id"] for prompt in recorded(prompts)}
    return [prompt for prompt in prompts if prompt["id"] not in ids]


CHOICES = {
    "recorded": recorded,
    "rest": to_train_on,
    "long": long,
    "ladder": ladder,
    "beside-ladder": beside_ladder,
}


def chats(spec_bench: Path, humaneval: Path, answers: dict[str, str]) -> list[dict]:
    """The lines of `prompts.jsonl`.

    Args:
        spec_bench: ``question.jsonl`` as published.
        humaneval: one object a line with ``turns``.
        answers: id of a first turn to the model's answer; second turns without one are left out.
    """
    lines = []
    for row in load(spec_bench):
        task, number = row["category"], row["question_id"]
        asked: Chat = []
        for turn, question in enumerate(row["turns"], 1):
            name = f"{task}-{number:03d}" + (f"-{turn}" if len(row["turns"]) > 1 else "")
            asked = [*asked, {"role": "user", "content": question}]
            lines.append({"id": name, "task": task, "messages": asked, **SPEC_BENCH})
            if name not in answers:
                break
            asked = [*asked, {"role": "assistant", "content": answers[name]}]
    for number, row in enumerate(load(humaneval)):
        asked = [{"role": "user", "content": row["turns"][0]}]
        line = {"id": f"humaneval-{number:03d}", "task": "humaneval", "messages": asked}
        lines.append({**line, **HUMANEVAL})
    return lines


def answered(trace: Path) -> dict[str, str]:
    """Answers of a recording by prompt id, as text without the token that ends them."""
    from transformers import AutoTokenizer

    import traces
    from traces.fetch_smollm2 import default_folder

    tokenizer = AutoTokenizer.from_pretrained(default_folder())
    rows = traces.load(trace).sequences.to_pylist()
    return {
        row["id"]: tokenizer.decode(row["output_tokens"], skip_special_tokens=True) for row in rows
    }


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("spec_bench", type=Path, nargs="?")
    parser.add_argument("humaneval", type=Path, nargs="?")
    for name in CHOICES:
        parser.add_argument(f"--{name}", dest="choice", action="append_const", const=name)
    parser.add_argument("--answers", type=Path, metavar="TRACE", help="has the first turns")
    parser.add_argument("-o", "--out", type=Path, default=PROMPTS, metavar="FILE")
    args = parser.parse_args()
    choices = args.choice or []
    if len(choices) + (args.humaneval is not None) != 1:
        parser.error("give SPEC_BENCH and HUMANEVAL, or one of --" + ", --".join(CHOICES))
    if choices and args.out == PROMPTS:
        parser.error(f"--{choices[0]} needs -o")
    if choices:
        lines = by_length(CHOICES[choices[0]](load()))
    else:
        answers = answered(args.answers) if args.answers else {}
        lines = chats(args.spec_bench, args.humaneval, answers)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_atomic(args.out, text.encode())
    print(f"{args.out}: {len(lines)} prompts")


if __name__ == "__main__":
    main()
