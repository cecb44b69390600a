"""Parts of pages that a program prints, put in when the site is built.

A line `<!-- made: NAME -->` of a page becomes the part of that name. What takes minutes to compute
lies in docs/_data, written by the command that the page names; the rest is made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "_data"
MARK = re.compile(r"^<!-- made: (\S+) -->$", re.MULTILINE)


class Part(NamedTuple):
    """What makes a part's Markdown, and the files that it is made from, below the root."""

    text: Callable[[], str]
    files: str


def kept(name: str) -> Any:
    """A file of docs/_data."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def claims() -> str:
    """Every claim with the verdict that `benchmarks.verdicts` kept."""
    from analysis.claims import claims as registered
    from analysis.claims.table import HEADS
    from simkit.simulator.display import markdown

    found = kept("claims")
    rows = [(*one.cells, *found["claims"][one.name]) for one in registered()]
    meaning = [f"- `{one.name}`: {one.statistic}" for one in registered()]
    table = markdown(HEADS, rows)
    return "\n".join([found["note"], "", *table, "", "The statistics:", "", *meaning])


def claims_elsewhere() -> str:
    """The claims whose verdict depends on the times or on the sampler."""
    from simkit.simulator.display import markdown

    found = kept("claims")["elsewhere"]
    table = markdown(("statistic", *found["arms"]), found["rows"])
    end = f"The other {found['agree']} claims agree wherever they can be tested."
    return "\n".join([*table, "", end])


def tables() -> str:
    """The papers' tables that `benchmarks.figures` kept."""
    from analysis.figures.tables.form import FilledTable

    lines = []
    for trace, found in kept("tables").items():
        lines += [f"## {trace}", "", *(FilledTable(**one).markdown() for one in found["tables"])]
        lines += [f"Missing: {line}.\n" for line in found["missing"]]
    return "\n".join(lines).rstrip()


def atlas() -> str:
    """The tables of the latency atlas, from its samples."""
    from benchmarks.gpu.atlas_table import DATA, page

    return page(DATA)


def answers() -> str:
    """A model's answers that `traces.recipes.smollm2.shown` kept."""
    from traces.recipes.smollm2.shown import page

    return page(kept("smollm2-answers"))


def ladder() -> str:
    """How often each draft of the ladder is accepted, and what it gives."""
    from simkit.simulator.display import markdown

    found = kept("ladder")
    first, *_ = found["greedy"]["rungs"]
    heads = ("draft", "made of the target's", "weights read, MB: own + the target's",
             "c by these weights", "c on this CPU", "accepted", "outside of loops",
             "accepted, T = 1", "`oracle`, tokens/step",
             *(f"best length if {price}" for price in first["best_fixed"]))  # fmt: skip
    sampled = {one["draft"]: one["acceptance"] for one in found["sampled"]["rungs"]}
    rows = []
    for one in found["greedy"]["rungs"]:
        best = (f"{policy}, {gain:.2f}×" for policy, gain in one["best_fixed"].values())
        shares = (one["acceptance"], one["outside_loops"], sampled[one["draft"]])
        made = one["made_of"].removeprefix("its ") or "a small model, trained on its answers"
        own, shared = one["weights_mb"]
        price = (f"{own} + {shared}", f"{one['c_of_weights']:.1f}", f"{one['c_measured']:g}")
        name = f"`{one['draft']}`"
        rows.append((name, made, *price, *shares, f"{one['oracle']:.2f}", *best))
    return "\n".join(markdown(heads, rows))


def ladder_by_task() -> str:
    """The share of draft tokens accepted by task: greedy, outside of loops, and at T = 1."""
    from simkit.simulator.display import markdown

    found = kept("ladder")
    greedy, sampled = (found[name]["rungs"] for name in ("greedy", "sampled"))
    drawn = {one["draft"]: one["by_task"] for one in sampled}

    def cell(draft: str, task: str, every: float, apart: float) -> str:
        return f"{every:.0%} ({apart:.0%}), {drawn[draft][task][0]:.0%}"

    rows = [
        (task, *(cell(one["draft"], task, *one["by_task"][task]) for one in greedy))
        for task in greedy[0]["by_task"]
    ]
    return "\n".join(markdown(("task", *(f"`{one['draft']}`" for one in greedy)), rows))


def ladder_claims(sampler: str) -> str:
    """At which acceptance each claim holds, at several prices."""
    from simkit.simulator.display import markdown

    found = kept("ladder")[sampler]
    return "\n".join(markdown(("claim", *found["prices"]), found["claims"]))


def ladder_values(sampler: str) -> str:
    """Each claim's statistic by draft with its interval, and on coin flips, at one price."""
    from simkit.simulator.display import markdown

    found = kept("ladder")[sampler]
    shares = (float(one["acceptance"].split()[0]) for one in found["rungs"])
    heads = (
        f"`{one['draft']}`, {at + 1e-9:.0%}" for one, at in zip(found["rungs"], shares, strict=True)
    )
    rows = [_values(**one) for one in found["values"]]
    table = markdown(("claim: statistic", *heads, "coin flips"), rows)
    return "\n".join([LEGEND, "", *table])


def _values(
    claim: str, paper: str, measure: str, drafts: list[dict[str, str]], flips: dict[str, Any]
) -> tuple[str, ...]:
    """A claim's row; what its statistic is of stands once, where it is the same for all drafts."""
    of = {one["what"] for one in drafts if one.get("what")}
    once = f", {of.pop()}" if len(of) == 1 else ""
    cells = []
    for one in drafts:
        what = "" if once else one.get("what", "")
        words = f"{MARKS[one['verdict']]} {what} {one.get('found', '').strip('–')}"
        cells.append(_LONGEST.sub("", " ".join(words.split())))
    said = f"holds on {flips['holds']} of {flips['of']}" if flips["of"] else "–"
    if flips["ends"]:
        low, high = flips["ends"]
        said += f", {low:.3f} to {high:.3f}"
    return f"`{claim}` ({paper}): {measure}{once}", *cells, said


def ladder_alike() -> str:
    """How often the two drafts that are made otherwise give the same verdict."""
    found = {sampler: kept("ladder")[sampler]["alike"] for sampler in ("greedy", "sampled")}
    cases = sum(n for n, _ in found.values())
    words = {"greedy": "greedy", "sampled": "T = 1"}
    differ = [f"{one}, {words[sampler]}" for sampler, (_, some) in found.items() for one in some]
    return (
        f"With each claim asked greedy and at T = 1, at four prices, both drafts give a verdict"
        f" {cases} times (many do not depend on the price). Cases in which they contradict each"
        f" other: {'; '.join(differ) or 'none'}."
    )


def printed(name: str) -> str:
    """What the command on the page printed."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8").rstrip()


MARKS = {
    "holds": "✓",
    "does not hold": "✗",
    "no example here": "✗",
    "not distinguishable": "?",
    "cannot be tested": "–",
}
_LONGEST = re.compile(r", max_draft=\d+")  # of all fixed lengths
LEGEND = (
    "✓ holds; ✗ does not hold, or no example here; ? not distinguishable; – cannot be tested. Where"
    " several statistics are tested, the one that decides is shown. Coin flips: on how many drafts'"
    " placebos the claim holds, and the range of its intervals there."
)
PRINTED = (
    "carried-over",
    "carried-over-sampled",
    "families",
    "ablations-pacer",
    "engine-llama-cpp",
    "engine-openvino",
    "engine-seconds",
    "fidelity",
    "fidelity-smollm2",
)
PARTS = {
    "claims": Part(claims, "analysis/claims/*.py"),
    "claims-elsewhere": Part(claims_elsewhere, "docs/_data/claims.json"),
    **{name: Part(partial(printed, name), f"docs/_data/{name}.txt") for name in PRINTED},
    "tables": Part(tables, "docs/_data/tables.json"),
    "atlas": Part(atlas, "traces/data/latency-atlas/*"),
    "ladder": Part(ladder, "docs/_data/ladder.json"),
    "ladder-alike": Part(ladder_alike, "docs/_data/ladder.json"),
    "ladder-by-task": Part(ladder_by_task, "docs/_data/ladder.json"),
    "ladder-claims": Part(partial(ladder_claims, "greedy"), "docs/_data/ladder.json"),
    "ladder-claims-sampled": Part(partial(ladder_claims, "sampled"), "docs/_data/ladder.json"),
    "ladder-values": Part(partial(ladder_values, "greedy"), "docs/_data/ladder.json"),
    "ladder-values-sampled": Part(partial(ladder_values, "sampled"), "docs/_data/ladder.json"),
    "smollm2-answers": Part(answers, "docs/_data/smollm2-answers.json"),
}


def filled(page: str) -> str:
    """A page with its parts.

    Raises:
        KeyError: there is no part of a name that the page has.
    """
    return MARK.sub(lambda found: PARTS[found[1]].text(), page)


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill a page that is read, and note the files that it then depends on."""
    for name in MARK.findall(source[0]):
        for file in ROOT.glob(PARTS[name].files):
            app.env.note_dependency(file)
    source[0] = filled(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
