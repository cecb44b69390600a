"""Several drafters on one recording: the same outputs, so they are compared prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from simkit.drafters.route import is_choice, parse
from simkit.errors import ReplayError
from simkit.policies import Policy
from simkit.simulator.display import html, in_text, noted, rich
from simkit.simulator.result import Comparison, Result, compared
from simkit.simulator.run import Run
from simkit.surface import Plotted

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table


class ByDrafter(Plotted):
    """Counts and times of policies, by drafter; see `Result`.

    Attributes:
        results: of each drafter, by its name, in order.
    """

    def __init__(self, results: Mapping[str, Result], confidence: float, seed: int) -> None:
        self.results = dict(results)
        self._confidence, self._seed = confidence, seed

    def __getitem__(self, drafter: str) -> Result:
        """The result of one drafter, by its name.

        Raises:
            ReplayError: it was not replayed.
        """
        name = str(parse(drafter)) if is_choice(drafter) else drafter
        if name not in self.results:
            raise ReplayError(f"{name} was not replayed; there is {', '.join(self.results)}")
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        """The drafters' names, in order."""
        return iter(self.results)

    def __len__(self) -> int:
        """How many drafters there are."""
        return len(self.results)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The fields of all results as a data frame; `drafter` comes first."""
        import polars as pl

        parts = [
            result.frame.select(pl.lit(name).alias("drafter"), pl.all())
            for name, result in self.results.items()
        ]
        return pl.concat(parts, how="vertical_relaxed")

    @property
    def columns(self) -> list[str]:
        """Names of the fields."""
        first = next(iter(self.results.values()))
        return ["drafter", *first.columns]

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries, None where a value is missing."""
        return [
            {"drafter": name, **record}
            for name, result in self.results.items()
            for record in result.records()
        ]

    def flat(self) -> list[dict[str, Any]]:
        """See `Result`."""
        return self.records()

    def table(self, wide: bool) -> Table:
        """See `Result`."""
        return rich(self.shown(), wide)

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know, one line each."""
        found: dict[str, list[str]] = {}
        for name, result in self.results.items():
            for note in result.notes:
                found.setdefault(note, []).append(name)
        every = len(self.results)
        return [
            note if len(names) == every else f"{', '.join(names)}: {note}"
            for note, names in found.items()
        ]

    def compare(self, a: tuple[str, str | Policy], b: tuple[str, str | Policy]) -> Comparison:
        """How much faster one drafter and policy is than another, paired over prompts.

        Args:
            a: the first drafter's name and its policy.
            b: the second's.

        Raises:
            ReplayError: one of them was not replayed, or there are no times.
        """
        (one, first), (other, second) = self._run(a), self._run(b)
        names = f"{one}: {first.policy}", f"{other}: {second.policy}"
        return compared(names, first, second, self._confidence, self._seed)

    def _run(self, given: tuple[str, str | Policy]) -> tuple[str, Run]:
        """The name of a drafter, and the run of a policy."""
        if not isinstance(given, tuple) or len(given) != 2:
            raise ReplayError(f"compare (drafter, policy) with (drafter, policy), not {given!r}")
        name, policy = given
        drafter = str(parse(name)) if is_choice(name) else name
        if drafter not in self.results:
            raise ReplayError(f"{drafter} was not replayed; there is {', '.join(self.results)}")
        try:
            return drafter, self.results[drafter].find(policy)
        except ReplayError as error:
            raise ReplayError(f"{drafter}: {error}") from None

    def __repr__(self) -> str:
        return f"<ByDrafter: {', '.join(self.results)}>"

    def __str__(self) -> str:
        return in_text(rich(self.shown(), wide=True), self.notes)

    def shown(self) -> list[dict[str, Any]]:
        """The rows for people: the drafter stands before its policy."""
        return [
            {**record, "policy": f"{record.pop('drafter')}: {record['policy']}"}
            for record in self.records()
        ]

    def _repr_html_(self) -> str:
        return html(self.shown()) + noted(self.notes)
