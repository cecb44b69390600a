"""`simkit report`: one page about a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import Cost, Drafter, First, Sampled, TraceName
from simkit.cli.places import check_outputs, drafted
from simkit.cli.progress import settings_bar

ReportPolicies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC",
        help="Also compare this policy; one with ranges is tuned. Repeat it for several.",
        autocompletion=complete.policies,
    ),
]


def report(
    trace: TraceName,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.html", help="File of the page.")
    ],
    cost: Cost = None,
    policy: ReportPolicies = None,
    sampled: Sampled = None,
    figures: Annotated[bool, typer.Option(help="Include the figures.")] = True,
    drafter: Drafter = None,
    first_token: First = "draft",
) -> None:
    """Write one self-contained page about a trace."""
    import analysis.report
    from traces.errors import UserError

    check_outputs([("--out", out)], [trace, cost, sampled])
    if out.exists() and not out.is_file():  # it would be replaced
        raise UserError(f"--out {out}: is no regular file")
    first = first_token
    words = _words(trace, out, drafter, cost, policy, sampled)
    words += [] if figures else ["--no-figures"]
    words += [] if first == "draft" else ["--first-token", first]
    made = analysis.report.report(
        drafted(trace, drafter), cost, policy or (), sampled, figures, words, settings_bar, first
    )
    made.save(out)
    size = out.stat().st_size
    print(f"wrote {out} ({size / 1e6:.1f} MB)", file=sys.stderr)


def _words(
    trace: str,
    out: Path,
    drafter: str | None,
    cost: str | None,
    policy: list[str] | None,
    sampled: str | None,
) -> list[str]:
    """The command, without the keys of its URLs."""
    from traces.urls import shown

    given = {
        "--drafter": [drafter],
        "--cost": [cost],
        "--policy": policy or [],
        "--sampled": [None if sampled is None else shown(sampled)],
    }
    words = ["simkit", "report", shown(trace), "-o", str(out)]
    for option, values in given.items():
        words += [word for value in values if value is not None for word in (option, value)]
    return words
