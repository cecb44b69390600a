"""The claims span by span: what each statistic is over the steps, or positions, of one span.

A claim is a function of `Evidence`. Here it is given one that answers for a span what has a
meaning there, and refuses the rest by name: sums of steps count where a step starts; a statistic of
single positions, which the claim says it is, counts the positions of the span; whole outputs, runs
and drafts from every start are cut by spans, and so are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from analysis.claims.beside import Beside, beside
from analysis.claims.claim import ENGINES, Claim
from analysis.claims.claim import claims as all_claims
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.table import Finding, Findings, examine, held, name_of, priced_by
from analysis.claims.verdict import Verdict
from analysis.groups import Groups
from analysis.priced import Priced
from analysis.replays import ALONE, Replayed
from analysis.study import FirstToken, Study, study_of
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.sweeps.engine import Progress

CUT = "its statistic needs whole outputs or drafts from every start, and spans cut these"
OTHER = "its statistic also needs a sampled recording, which has other spans"
SERVED = "its statistic needs a server, whose requests are whole outputs"
_OF_TRACE = ("sampler", "max_draft", "max_new_tokens", "manifest", "eos_token_ids", "n_sequences")
_OF_TRACE += ("recording", "path", "has_draft_model", "hash")


def check_by_span(
    trace: AnyTrace | Study,
    cost: AnyCost | None = None,
    claims: Iterable[Claim] | None = None,
    progress: Progress | None = None,
    first_token: FirstToken = "draft",
) -> Beside:
    """Test claims on each span of a trace, side by side.

    Settings are chosen as for the whole trace: on other prompts, all spans together. There are no
    coin flips to compare with.

    Args:
        trace: with spans, which `simkit spans` writes; see `check`, as for the other arguments.
        cost: see `simkit.replay`.
        claims: which; None means all of them.
        progress: called with how many are done, and of how many.
        first_token: see `simkit.replay`; of a study, its own.

    Raises:
        UserError: no spans were written, or as `check` does.
    """
    study = study_of(trace, first_token)
    groups = Groups(study.trace, "span")
    study.make_room(replays=True)
    whole, priced = Evidence(study, cost), Priced()
    with priced.watching():
        _ = whole.where
    names, wanted = list(groups.masks)[:-1], all_claims(claims)
    sums: dict[str, Replayed] = {}
    found: dict[str, list[Finding]] = {name: [] for name in names}
    for done, claim in enumerate(wanted, 1):
        with priced.watching():
            for name in names:
                at = SpanEvidence(whole, groups, name, claim, sums)
                found[name].append(_examined(claim, at))
        if progress is not None:
            progress(done, len(wanted))
    called, how = name_of(study.trace), (priced_by(whole), priced.sentences(), held(whole))
    return beside([Findings(tuple(found[name]), f"{called}, {name}", *how) for name in names])


def _examined(claim: Claim, at: Evidence) -> Finding:
    if claim.paper in ENGINES:
        return Finding(claim, (), Verdict.UNTESTED, SERVED)
    return examine(claim, at)


def _refuse(*_given: Any, **_named: Any) -> NoReturn:
    raise Untestable(CUT)


class SpanEvidence(Evidence):
    """One span of a trace.

    Args:
        whole: the trace.
        groups: its spans.
        name: of the span.
        claim: that is tested.
        sums: replays by span that were made, by spec; filled in.
    """

    def __init__(
        self, whole: Evidence, groups: Groups, name: str, claim: Claim, sums: dict[str, Replayed]
    ) -> None:
        super().__init__(whole.study, whole.cost)
        self._whole, self._groups, self._name, self._by_spec = whole, groups, name, sums
        self._charge = whole._charge  # and with it the times, and what is replayed in
        self._single = claim.positions
        real, self._real = self.trace, self.trace
        columns = {"positions": self._positions} if claim.positions else {}
        self.trace = _Only(real, _OF_TRACE, columns)  # type: ignore[assignment]

    @property
    def sampled(self) -> NoReturn:  # type: ignore[override]
        """Refused: another recording."""
        raise Untestable(OTHER)

    @sampled.setter
    def sampled(self, value: None) -> None:
        pass

    @property
    def best_length(self) -> int:
        """That of the whole trace."""
        return self._whole.best_length

    @property
    def layout(self) -> Any:
        """Where the span's positions of each prompt begin, for statistics of single positions."""
        if not self._single:
            _refuse()
        n = np.diff(self._real.position_offsets)
        prompt = np.repeat(np.arange(len(n)), n)[self._inside]
        offsets = np.append(0, np.cumsum(np.bincount(prompt, minlength=len(n))))
        return _Only(None, (), {"offsets": offsets, "n_output": np.diff(offsets)})

    def replay(self, spec: str) -> Replayed:
        """The span's part of a policy, or of the target alone."""
        if spec not in self._by_spec:
            at, groups = self._whole, self._groups
            found = groups.alone(at) if spec == ALONE else groups.of(at, at.replay(spec))
            self._by_spec[spec] = found
        return self._groups.part(self._by_spec[spec], self._name)

    def tuned(self, spec: str | tuple[str, ...]) -> Replayed:
        """The span's part of a family that is tuned as on the whole trace."""
        key = f"tuned {spec}"
        if key not in self._by_spec:
            self._by_spec[key] = self._groups.of(self._whole, self._whole.tuned(spec))
        return self._groups.part(self._by_spec[key], self._name)

    # Steps one by one; runs, which go on over spans; drafts, which begin anew in each stretch.
    run = accepted_runs = by_depth = _refuse
    # Stretches between loops; other drafters, measured on whole outputs.
    outside = trained = property(_refuse)  # type: ignore[assignment]

    @property
    def _inside(self) -> np.ndarray:
        return self._groups.inside(self._name)

    def _positions(self, column: str) -> np.ndarray:
        return self._real.positions(column)[self._inside]


class _Only:
    """Some attributes of a thing, and others in their place; the rest is refused."""

    def __init__(self, thing: Any, allowed: tuple[str, ...], own: dict[str, Any]) -> None:
        self._thing, self._allowed, self._own = thing, allowed, own

    def __getattr__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name in self._allowed:
            return getattr(self._thing, name)
        _refuse()
