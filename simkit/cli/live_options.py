"""What `simkit live` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from simkit.cli import complete
from simkit.cli.options import (
    RUN,
    TURNS,
    Clock,
    Cost,
    Device,
    Dtype,
    Heads,
    MaxNewTokens,
    PromptsFile,
    Revision,
    Rounds,
    TargetModel,
    Threads,
    Turns,
)
from simkit.cli.running import PairNames
from traces.messages import how_many


@dataclass(frozen=True)
class LiveOptions:
    """What the command was asked for."""

    recorded: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRACE]",
            help="With --engine or --url: the trace whose prompts are sent.",
            show_default=False,
            autocompletion=complete.traces,
        ),
    ] = None
    target: Annotated[str, TargetModel] = ""
    prompts: Annotated[Path | None, PromptsFile] = None
    draft: Annotated[
        str | None, typer.Option(help="Draft model: local folder or hub id.", show_default=False)
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy to run. Repeat it for several. The first one runs twice, as a control.",
            autocompletion=complete.policies,
        ),
    ] = None
    controller: Annotated[
        list[str] | None,
        typer.Option(
            help="With --concurrency: controller that sets the draft lengths. Repeat it for"
            " several. The first one runs twice, as a control."
        ),
    ] = None
    concurrency: Annotated[
        int | None, typer.Option(help="Serve this many prompts at once, in a batch.")
    ] = None
    cost: Cost = None
    rounds: Rounds = 5
    head: Heads = None
    n_prompts: Annotated[
        int | None,
        typer.Option(
            "--n-prompts", help="Number of prompts, spread evenly over the file. Default: all."
        ),
    ] = None
    max_new_tokens: MaxNewTokens = 256
    first_token: Annotated[
        Literal["draft", "prefill"],
        typer.Option(
            help="What emits the first output token:"
            " prefill (the pass over the prompt) or draft (the first speculative step)."
        ),
    ] = "draft"
    batch_size: Annotated[
        int,
        typer.Option(
            rich_help_panel=RUN, help="Sequences per batch. They share each draft length."
        ),
    ] = 1
    stop: Annotated[
        Literal["all", "any"],
        typer.Option(
            help="A batch's draft ends when the rule stops all of its sequences, or"
            " any one of them."
        ),
    ] = "all"
    device: Device = "auto"
    dtype: Dtype = "float32"
    revision: Revision = None
    threads: Threads = None
    turns: Annotated[
        Turns | None, typer.Option(help=f"{TURNS} Default: sequence; step with --concurrency.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Write the log to FILE.parquet; with --engine or --url to a folder."
        ),
    ] = None
    trace: Annotated[
        Path | None, typer.Option(help="Write the log into this trace, as live.parquet.")
    ] = None
    drafter: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="For tree policies: drafter instead of --draft, such as 'feature(\"DIR\")'."
            " With --trace: NAME of the attached drafter that gets the log.",
            show_default=False,
        ),
    ] = None
    clock: Annotated[
        Clock, typer.Option(help="For tree policies on a CPU: measure wall time or processor time.")
    ] = "wall"

    @property
    def pair(self) -> PairNames:
        """The models.

        Raises:
            LiveError: there is no draft model.
        """
        from simkit.errors import LiveError

        if self.draft is None:
            raise LiveError("give --draft, or --drafter with tree policies")
        return PairNames(self.target, self.draft, self.device, self.dtype, self.revision)

    @property
    def prompts_file(self) -> Path:
        """The file of prompts.

        Raises:
            LiveError: there is none.
        """
        from simkit.errors import LiveError

        if self.prompts is None:
            raise LiveError("give --target and --prompts, or a trace and --engine")
        return self.prompts

    def spread_prompts(self, tokenizer: Any, vocab_size: int) -> dict[int, list[int]]:
        """Tokens of the prompts that are run, at least two, by their numbers in the file.

        Raises:
            LiveError: there are fewer.
        """
        from simkit.errors import LiveError
        from traces.record.prompts import read_prompts

        rows = read_prompts(self.prompts_file, tokenizer, vocab_size)
        n = len(rows) if self.n_prompts is None else min(self.n_prompts, len(rows))
        if n < 2:
            raise LiveError(f"{how_many(n, 'prompt')}: at least 2 are needed for a comparison")
        return {k * len(rows) // n: rows[k * len(rows) // n].tokens for k in range(n)}

    def check_longest(self, longest: int, whose: str, context_len: int) -> None:
        """Refuse prompts that do not fit with their outputs into what models were trained for.

        Raises:
            LiveError: they need more positions than there are.
        """
        from simkit.errors import LiveError

        if longest > context_len:
            raise LiveError(
                f"{self.prompts}: prompts and outputs need {how_many(longest, 'position')}, but the"
                f" {whose} has only {context_len}"
            )

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        """Refuse options that do not go with what is run.

        Args:
            names: of the options, as Python has them.
            why: they do not go, {} being those that are given.

        Raises:
            LiveError: one of them is given.
        """
        from simkit.errors import LiveError

        defaults = {field.name: field.default for field in fields(self)}
        given = [
            f"--{name.replace('_', '-')}"
            for name in names
            if getattr(self, name) not in (defaults[name], [])
        ]
        if given:
            raise LiveError(why.format(", ".join(given)))
