"""All claims tested on a trace, and the table of what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from analysis.claims.claim import Claim, ClaimKind, Part
from analysis.claims.claim import claims as all_claims
from analysis.claims.evidence import Evidence
from analysis.claims.placebos import NONE, Share, shares
from analysis.claims.verdict import DECISIVE, UNJUDGED, Verdict, against_print, judge, overall
from analysis.labelled_replays import holds
from analysis.priced import Priced
from analysis.stats import Estimate
from analysis.study import LONG, FirstToken, Study, study_of
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.simulator.display import grid, markdown
from simkit.statistics.enough import few_among
from simkit.surface import Framed
from simkit.sweeps.engine import Progress
from traces.errors import UserError
from traces.finding import bundled, find
from traces.loops import drafts_made_of
from traces.messages import how_many
from traces.placebo import placebo as coin_flips
from traces.trace import Trace, load, opened

if TYPE_CHECKING:
    import polars as pl

SHOWN = 4  # parts of a claim in a table for people
HEADS = ("paper", "claim", "statistic", "paper's value", "ours [95% interval]", "verdict")
HEADS += ("on coin flips",)
SEED = 0  # of the placebo
ALIKE = "also on coin flips"


@dataclass(frozen=True)
class Finding:
    """What a trace says of one claim.

    Attributes:
        claim: that was tested.
        parts: its statistics; none if it cannot be tested.
        verdict: on all parts together.
        why: why it cannot be tested, or what it follows from; else empty.
        placebo: the verdict on a placebo of the trace; None where there is none.
        flips: the statistics on that placebo.
        share: how often it holds on many placebos; empty where that is not known.
    """

    claim: Claim
    parts: tuple[Part, ...]
    verdict: Verdict
    why: str = ""
    placebo: Verdict | None = None
    share: Share = NONE
    flips: tuple[Part, ...] = ()

    @property
    def without_structure(self) -> bool:
        """Whether it holds on coin flips too, so that it tells of no structure."""
        return self.verdict is Verdict.HOLDS and self.placebo is Verdict.HOLDS

    def record(self) -> dict[str, Any]:
        """As plain values."""
        one = self.claim
        return {
            "claim": one.name,
            "paper": one.paper,
            "place": one.place,
            "says": one.says,
            "statistic": one.statistic,
            "measure": one.measure,
            "printed": one.printed,
            "kind": str(one.kind),
            "parts": [_plain(part) for part in self.parts],
            "verdict": str(self.verdict),
            "why": self.why,
            "placebo_verdict": None if self.placebo is None else str(self.placebo),
            "would_hold_without_structure": self.without_structure,
            "placebo_holds": self.share.holds,
            "placebos": self.share.placebos,
        }

    def ours(self) -> str:
        """The parts in a line, those that decide first."""
        parts = self.deciding()
        shown = [_line(part) for part in parts[:SHOWN]]
        more = len(parts) - SHOWN
        return "; ".join([*shown, *([f"{more} more"] if more > 0 else [])])

    def deciding(self) -> list[Part]:
        """The parts, those that decide the verdict first."""
        rank = {str(verdict): k for k, verdict in enumerate(DECISIVE)}
        return sorted(self.parts, key=lambda p: rank.get(_plain(p)["verdict"], len(rank)))

    def row(self) -> tuple[str, ...]:
        """The cells under `HEADS`."""
        return *self.claim.cells, *self.found()

    def found(self) -> tuple[str, str, str]:
        """What the trace gives: the last cells under `HEADS`."""
        verdict = f"{self.verdict}: {self.why}" if self.why else str(self.verdict)
        verdict += f"; {ALIKE}" if self.without_structure else ""
        null = "–" if self.placebo is None else f"{self.placebo}{self.share}"
        return self.ours(), verdict, null


@dataclass(frozen=True)
class Findings(Framed):
    """What a trace says of all claims; shows itself as a table.

    Attributes:
        of: one for each claim.
        trace: its name.
        cost: in words.
        remarks: what bears on several claims, as a window that the trace cuts short.
        intervals: what those of speeds hold beside the spread of prompts; empty if nothing.
    """

    of: tuple[Finding, ...]
    trace: str
    cost: str
    remarks: tuple[str, ...] = ()
    intervals: str = ""

    def note(self) -> str:
        """How many were tested, with what verdicts, and what these mean together."""
        count = Counter(one.verdict for one in self.of)
        theorems, settings = count[Verdict.THEOREM], count[Verdict.SETTING]
        tested = sum(one.verdict not in UNJUDGED for one in self.of)
        said = ", ".join(f"{count[one]} {words}" for one, words in _MANY.items() if count[one])
        alike = sum(one.without_structure for one in self.of)
        if any(one.placebo is not None for one in self.of):
            said += f". Of those that hold, {alike} hold on coin flips too"
        founds = [part.found for one in self.of for part in one.parts]
        weak = few_among({e.n_prompts for e in founds if e.lo is not None})
        note = f"Trace {self.trace}, {self.cost}: "
        if not tested:
            note += self._untested()
            if not founds:
                return note
        else:
            note += (
                f"{how_many(len(self.of), 'claim')}: {theorems} true or false by construction,"
                f" {how_many(settings, 'setting')} of engines (not judged),"
                f" {count[Verdict.UNTESTED]} cannot be tested, {tested} judged: {said}."
                " Each verdict is for its claim alone, at 95%: about one in twenty may be wrong by"
                " chance. Intervals are over prompts."
            )
        note += f" {self.intervals}" if self.intervals else ""
        said = [f"{line[0].upper()}{line[1:]}." for line in weak]
        return " ".join([note, *self.remarks, *said])

    def _untested(self) -> str:
        """Why no claim was tested: what most of them lack."""
        reasons = Counter(one.why for one in self.of if one.verdict is Verdict.UNTESTED)
        said = f"{how_many(len(self.of), 'claim')}: none can be tested"
        if not reasons:
            return f"{said}."
        why, n = reasons.most_common(1)[0]
        return f"{said}; {n} of them: {why}."

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary a claim, its statistics in a list."""
        return [one.record() for one in self.of]

    @property
    def frame(self) -> pl.DataFrame:
        """One row for each statistic; a claim that cannot be tested has one without values."""
        import polars as pl

        rows = []
        for record in self.records():
            parts, record["claim_verdict"] = record.pop("parts"), record.pop("verdict")
            why = record.pop("why")
            for part in parts or [_EMPTY]:
                rows.append(record | {"why": why} | part)
        numbers = dict.fromkeys(("value", "lo", "hi"), pl.Float64) | {"n_prompts": pl.Int64}
        return pl.DataFrame(rows, schema_overrides=numbers)

    def markdown(self) -> str:
        """The note, the table, and what each statistic is."""
        lines = markdown(HEADS, [one.row() for one in self.of])
        meaning = [f"- `{one.claim.name}`: {one.claim.statistic}" for one in self.of]
        return "\n".join([self.note(), "", *lines, "", "The statistics:", "", *meaning, ""])

    def __repr__(self) -> str:
        return f"<Findings: {self.note()}>"

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        table = grid(HEADS, [one.row() for one in self.of])
        return f"<p>{escape(self.note())}</p>{table}"


def check(
    trace: AnyTrace | Study,
    cost: AnyCost | None = None,
    sampled: AnyTrace | None = None,
    claims: Iterable[Claim] | None = None,
    progress: Progress | None = None,
    placebo: int | None = SEED,
    first_token: FirstToken = "draft",
) -> Findings:
    """Test claims on a trace.

    Args:
        trace: a recorded pair; or its folder, a bundled trace's name, or a study.
        cost: see `simkit.replay`.
        sampled: a sampled recording of the same pair, for the claims about sampling; None means
            the one bundled beside the trace, if there is one.
        claims: which; None means all of them.
        progress: called with how many are done, and of how many.
        placebo: seed of the coin flips that claims are tested on as well (`traces.placebo`); None
            leaves them out, and so does a trace of more than `analysis.study.LONG` positions.
        first_token: see `simkit.replay`; of a study, its own.

    Raises:
        UserError: the trace or the cost cannot be read, or `sampled` is greedy, of other models,
            or the trace itself. A claim that cannot be tested is no error: its verdict says so.

    >>> check("reference", claims=[CLAIMS["speculation_pays"]]).frame["verdict"].to_list()
    ['holds']
    """
    study = study_of(trace, first_token)
    one, first = study.trace, study.first_token
    other = _sampled(opened(sampled), one) if sampled is not None else _sibling(one)
    study.make_room(replays=True)  # those of figures drawn before
    sampling = None if other is None else Evidence(other, cost, None, first)
    at = Evidence(study, cost, sampling)
    priced = Priced()
    with priced.watching():
        _ = at.where  # what is wrong with the cost is wrong for all claims
    null = _null(one, other, cost, placebo, first)
    known = shares(one, other, cost) if first == "draft" else {}
    wanted, found = all_claims(claims), []
    for claim in wanted:
        at.make_room()
        with priced.watching():
            mine = examine(claim, at)
        found.append(_beside_null(mine, null, known))
        if progress is not None:
            progress(len(found), len(wanted))
    remarks = (*priced.sentences(), *_window(at), *_made_of(one))
    return Findings(tuple(found), name_of(one), priced_by(at), remarks, held(at))


def _beside_null(mine: Finding, null: Evidence | None, known: Mapping[str, Share]) -> Finding:
    """A finding, with the verdict of the same claim on coin flips if there is one."""
    if null is None or mine.verdict in UNJUDGED:
        return mine
    share, beside = known.get(mine.claim.name, NONE), examine(mine.claim, null)
    return replace(mine, placebo=beside.verdict, share=share, flips=beside.parts)


def priced_by(at: Evidence) -> str:
    """What times and first tokens the claims are of, in words."""
    times = str(at.cost) if at.cost is not None else "times measured with it"
    said = times if at.timed else "no times"
    first = at.study.first_token
    return said + ("" if first == "draft" else ", first token from the prefill")


def name_of(trace: Trace) -> str:
    """A trace's name, for people; that of a drafter's drafts begins with its recording's."""
    name = trace.path.name if trace.path else "in memory"
    if trace.recording is None or trace.recording.path is None:
        return name
    return f"{trace.recording.path.name}, drafter {name}"


def _null(
    one: Trace, other: Trace | None, cost: AnyCost | None, seed: int | None, first: FirstToken
) -> Evidence | None:
    """The same evidence of coin flips."""
    if seed is None or one.n_positions > LONG:
        return None
    sampled = None if other is None else Evidence(coin_flips(other, seed), cost, None, first)
    return Evidence(coin_flips(one, seed), cost, sampled, first)


def _window(at: Evidence) -> list[str]:
    """That PEARL's window is not round(c), and why."""
    try:
        why = at.too_wide
    except UserError:  # without times there is no c, as the claims that need it say
        return []
    return [f"PEARL's window is {at.window} instead of round(c): {why}."] if why else []


def _made_of(trace: Trace) -> list[str]:
    """That drafts are the target itself, rounded or in part."""
    made = drafts_made_of(trace)
    return [f"{made[0].upper()}{made[1:]}."] if made else []


def held(at: Evidence) -> str:
    """What intervals of speeds hold beside the spread of prompts."""
    if not at.timed:
        return ""
    held = holds(at.charge)
    return f"{held[0].upper()}{held[1:]}." if held else ""


def examine(claim: Claim, at: Evidence) -> Finding:
    """Test one claim; what the trace lacks becomes the reason why it cannot be tested."""
    try:
        if claim.draft_model:
            at.study.need_draft_model()
        parts = tuple(claim.test(at))
    except UserError as error:
        return Finding(claim, (), Verdict.UNTESTED, str(error))
    if claim.kind is ClaimKind.THEOREM:
        return Finding(claim, parts, Verdict.THEOREM, claim.theorem)
    if claim.kind is ClaimKind.SETTING:
        told = tuple(part._replace(expected=None) for part in parts)
        return Finding(claim, told, Verdict.SETTING, "what an engine is set to is no finding")
    judged = [(part, judge(part.found, part.expected)) for part in parts if part.expected]
    verdict = overall(verdict for _, verdict in judged)
    notes = [_weak(part.found) for part, one in judged if one is Verdict.UNTESTED]
    why = next((note for note in notes if note), "") if verdict is Verdict.UNTESTED else ""
    if claim.kind is ClaimKind.EXAMPLE and verdict is Verdict.FAILS:
        verdict = Verdict.NO_EXAMPLE  # that it can happen is not refuted where it does not
    return Finding(claim, parts, verdict, why)


def _weak(found: Estimate) -> str:
    if found.lo is None:
        return found.note
    return f"only {how_many(found.n_prompts, 'prompt')}, too few for a verdict"


_MANY = {
    Verdict.HOLDS: "hold",
    Verdict.FAILS: "do not hold",
    Verdict.OPEN: "not distinguishable",
    Verdict.NO_EXAMPLE: "without an example here",
}


def _sampled(other: Trace, one: Trace) -> Trace:
    """A sampled recording beside a trace.

    Raises:
        UserError: it is the trace itself, is greedy, or is of other models.
    """
    name = other.path or "the trace"
    if other is one or (other.path and one.path and other.path.samefile(one.path)):
        raise UserError(f"--sampled {name}: is the trace itself; give a sampled recording of it")
    if other.sampler.greedy:
        raise UserError(f"--sampled {name}: is greedy; give a sampled recording")
    for which in ("target", "draft"):
        mine, theirs = (getattr(trace.manifest, which) for trace in (one, other))
        if mine and theirs and mine.weights_sha256 != theirs.weights_sha256:
            raise UserError(f"--sampled {name}: is of another {which} model, {theirs.id}")
    return other


def _sibling(trace: Trace) -> Trace | None:
    """The sampled recording bundled beside a bundled trace."""
    name = f"{trace.path.name}-sampled" if trace.path else ""
    if name not in bundled() or trace.path is None or find(trace.path.name)[0] != trace.path:
        return None
    return load(name)


def _plain(part: Part) -> dict[str, Any]:
    found = part.found
    return {
        "part": part.what,
        "value": found.value,
        "lo": found.lo,
        "hi": found.hi,
        "n_prompts": found.n_prompts,
        "predicted": "" if part.expected is None else str(part.expected),
        "printed_lo": part.printed[0] if part.printed else None,
        "printed_hi": part.printed[1] if part.printed else None,
        "beside_print": against_print(found, part.printed),
        "verdict": "" if part.expected is None else str(judge(found, part.expected)),
        "note": found.note,
    }


_EMPTY = dict.fromkeys(
    ("part", "predicted", "beside_print", "verdict", "note"), ""
) | dict.fromkeys(("value", "lo", "hi", "n_prompts", "printed_lo", "printed_hi"))


def _line(part: Part) -> str:
    found = part.found
    name = f"{part.what}: " if part.what else ""
    if found.value is None:
        return f"{name}– ({found.note})"
    where = against_print(found, part.printed)
    beside = f", {where} the paper's" if where in ("below", "above") else ""
    return f"{name}{found.text()}{beside}"
