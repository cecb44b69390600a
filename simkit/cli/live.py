"""`simkit live`: real speculative decoding, timed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simkit.cli import complete
from simkit.cli.options import (
    DRAWN,
    RUN,
    TURNS,
    Cost,
    Device,
    Dtype,
    Heads,
    Revision,
    Threads,
    Turns,
)
from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.live.log import LiveLog
    from simkit.live.rotation import Arm, Bench
    from simkit.policies import Sequential


def live(
    target: Annotated[str, typer.Option(help="Target model: local folder or hub id.")],
    prompts: Annotated[Path, typer.Option(help="JSON Lines: prompt, messages or prompt_tokens.")],
    draft: Annotated[
        str | None, typer.Option(help="Draft model: local folder or hub id.", show_default=False)
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Spec; repeat it. The first one runs twice.", autocompletion=complete.policies
        ),
    ] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(help="With --concurrency: of all requests. Spec; repeat it. See --policy."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Serve: so many prompts are in flight, batched.")
    ] = None,
    cost: Cost = None,
    rounds: Annotated[int, typer.Option(help="How often every prompt is decoded.")] = 5,
    head: Heads = None,
    n_prompts: Annotated[
        int | None, typer.Option("--n-prompts", help="So many, spread over the file.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest output, T_max.")] = 256,
    temperature: Annotated[float, typer.Option(rich_help_panel=DRAWN, help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(rich_help_panel=DRAWN, help="0 keeps all tokens.")] = 0,
    top_p: Annotated[float, typer.Option(rich_help_panel=DRAWN, help="1 keeps all tokens.")] = 1.0,
    draft_temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=DRAWN, help="Of the draft alone; 0 proposes its likeliest token."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(rich_help_panel=DRAWN, help="Of the keyed draws.")] = 0,
    first_token: Annotated[
        Literal["draft", "prefill"], typer.Option(help="Which pass emits the first token.")
    ] = "draft",
    batch_size: Annotated[
        int, typer.Option(rich_help_panel=RUN, help="Sequences that share each draft length.")
    ] = 1,
    stop: Annotated[
        Literal["all", "any"], typer.Option(help="Of a batch: whose rules must stop.")
    ] = "all",
    device: Device = "auto",
    dtype: Dtype = "float32",
    revision: Revision = None,
    threads: Threads = None,
    turns: Annotated[
        Turns | None, typer.Option(help=f"{TURNS} Default: sequence; step with --concurrency.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Log: FILE.parquet.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Put the log into this trace, as live.parquet.")
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="What drafts trees, in place of --draft: 'feature(\"DIR\")'. With --trace: NAME of"
            " the drafter under which the log is kept.",
            show_default=False,
        ),
    ] = None,
    clock: Annotated[
        Literal["wall", "processor"],
        typer.Option(help="Of trees on a CPU: whose seconds."),
    ] = "wall",
) -> int:
    """Decode prompts under several policies in turns, and log every pass."""
    from simkit.cli.live_trees import WantedTrees, is_tree, live_trees
    from simkit.cli.overwrite_guard import check_apart
    from simkit.cli.progress import decoding_bar
    from simkit.cli.running import files_of, load_bench, opened, prepare
    from simkit.errors import LiveError
    from simkit.live.settings import DecoderSettings
    from traces.record.prompts import check_file
    from traces.sampler import Sampler

    check_apart([("--out", out)], [prompts])
    check_file(prompts)
    sampler = Sampler(temperature, top_k, top_p, draft_temperature)
    settings = DecoderSettings(sampler, seed, max_new_tokens, (), first_token)
    if policy and (not draft or clock != "wall" or is_tree(policy)):
        if not is_tree(policy):
            raise LiveError("give --draft; --drafter 'feature(…)' and --clock are of tree policies")
        others = {"--controller": controller, "--trace": trace, "--cost": cost}
        spec = _of_trees(draft, drafter, others, batch_size)
        shown = target, spec, device, dtype, revision, prompts, policy, n_prompts, rounds
        how = settings, turns or "sequence", threads, clock == "processor", out, head
        return _report(*live_trees(WantedTrees(*shown, *how)))
    if draft is None:
        raise LiveError("give --draft, or --drafter with tree policies")
    names = target, draft, device, dtype, revision
    if concurrency is not None or controller:
        from simkit.cli.live_serving import Wanted as WantedServing
        from simkit.cli.live_serving import live_serving

        others = {"--policy": policy, "--head": head, "--trace": trace, "--drafter": drafter}
        _check_serving(concurrency, controller, others, batch_size)
        specs, many = controller or [], concurrency if concurrency is not None else 1
        how = (n_prompts, rounds, settings, turns or "step", threads, out)
        return live_serving(WantedServing(names, prompts, specs, many, cost, *how))
    numbers = (rounds, batch_size, max_new_tokens, 1 if n_prompts is None else n_prompts)
    chosen, heads = prepare(policy or [], head, settings, numbers)
    from simkit.live.rotation import use_threads

    destination, folder = _destination(out, trace, drafter)
    check_apart([("--out", out)], [target, draft, prompts, *files_of(head)])
    use_threads(threads)
    bench = load_bench(names, settings, heads, turns or "sequence", stop)
    _settle_kernel(bench, trace, drafter)
    jobs, arms = _jobs(bench, prompts, n_prompts, batch_size, chosen)
    with opened(destination, bench, folder) as log:
        with decoding_bar(rounds * len(jobs) * len(arms)) as tick:
            from simkit.live.rotation import run

            found = run(bench, arms, jobs, rounds, log, tick)
    return _report(log, found, arms, jobs)


def _of_trees(
    draft: str | None, drafter: str | None, others: dict[str, Any], batch_size: int
) -> str:
    """The spec of what drafts trees."""
    from simkit.errors import LiveError

    given = [name for name, value in others.items() if value]
    given += ["--batch-size"] if batch_size != 1 else []
    if given:
        raise LiveError(f"{', '.join(given)}: not with policies that draft trees")
    if (draft is None) == (drafter is None):
        raise LiveError("what drafts the trees? Give --drafter 'feature(\"DIR\")', or --draft DIR")
    return drafter or f'model("{draft}")'


def _check_serving(
    concurrency: int | None, controller: list[str] | None, others: dict[str, Any], batch_size: int
) -> None:
    from simkit.errors import LiveError

    if concurrency is None or not controller:
        raise LiveError("--controller and --concurrency belong together: give both")
    given = [name for name, value in others.items() if value]
    given += ["--batch-size"] if batch_size != 1 else []
    if given:
        raise LiveError(f"--concurrency serves under controllers: {', '.join(given)}: not with it")


def _jobs(
    bench: Bench, file: Path, n_prompts: int | None, size: int, policies: list[Sequential]
) -> tuple[list[Any], list[Arm]]:
    """The target alone, every policy, and the first one again; each on all prompts."""
    from simkit.errors import LiveError
    from simkit.live.rotation import Arm, LiveJob
    from traces.record.prompts import read_prompts

    pair = bench.pair
    rows = read_prompts(file, pair.tokenizer, pair.vocab_size)
    arms = [Arm(), *(Arm(policy) for policy in policies), Arm(policies[0])]
    wanted = len(rows) if n_prompts is None else min(n_prompts, len(rows))
    if wanted <= size:
        raise LiveError(
            f"too few prompts ({wanted}) for two batches of {size}: give at least {size + 1},"
            " so that there is something to compare"
        )
    numbers = [k * len(rows) // wanted for k in range(wanted)]
    budget = bench.settings.max_new_tokens
    longest = max(len(rows[n].tokens) for n in numbers) + budget
    if size > 1 and bench.stop == "all":  # drafted on where a sequence's own budget has ended
        longest += min(budget, max(policy.max_draft for policy in policies))
    if longest > pair.context_len:
        raise LiveError(
            f"{file}: needs {how_many(longest, 'position')}, the pair has {pair.context_len}"
        )
    pair.prove(longest)
    groups = [numbers[k : k + size] for k in range(0, wanted, size)]
    every = tuple(range(len(arms)))
    return [LiveJob(tuple(rows[n].tokens for n in some), some[0], every) for some in groups], arms


def _destination(
    out: Path | None, trace: Path | None, drafter: str | None
) -> tuple[Path | None, Path | None]:
    """Where the log goes, and the folder of its trace; found out before anything is measured."""
    from simkit.cli.places import folder_to_write
    from simkit.errors import LiveError
    from traces.outputs import check_room
    from traces.trace import load

    if out and trace:
        raise LiveError("give -o or --trace, not both")
    if drafter and not trace:
        raise LiveError("--drafter names one that is attached to a trace: give --trace")
    if out and out.suffix != ".parquet":
        raise LiveError(f"-o {out}: the log is a .parquet file")
    if trace:
        folder = folder_to_write(load(trace, drafter), str(trace)).resolve()
        check_room(folder / "live.parquet")
        return folder.with_name(f"{folder.name}.live.parquet"), folder  # until it is whole
    return out, None


def _settle_kernel(bench: Bench, trace: Path | None, drafter: str | None) -> None:
    """Reduce logits as the log's trace does, else with the kernel where it can run.

    Raises:
        LiveError: the trace is another pair's.
    """
    from dataclasses import replace

    from simkit.fidelity.run import check_pair
    from traces.record.statistics_triton import can_run_for
    from traces.trace import load

    if trace:
        there = load(trace, drafter)
        check_pair(there, bench.pair)
        kernel = there.manifest.statistics == "kernel"
    else:
        kernel = can_run_for(bench.pair)
    bench.settings = replace(bench.settings, kernel=kernel)


def _report(log: LiveLog, found: dict, arms: list[Arm], jobs: list[Any]) -> int:
    """Print speeds, and whether they can be believed; the exit status."""
    from rich.console import Console

    from simkit.cli.tables import page, say
    from simkit.cli.tables import table as made
    from simkit.format_ratio import short
    from simkit.live.summary import drifts, losses, per_step, sequences

    table = log.table()
    seen = sequences(table)
    heads = "policy", "tokens/s", "speedup", "95% interval", "tokens/step", "policy+head ms"
    rows = []
    for row, name in enumerate(seen.names):
        speed = seen.tokens[0].sum() / seen.seconds[row].sum()
        low, high = seen.interval(0, row)
        parts = per_step(table, int(seen.runs[row]))
        steps = f"{_tokens_per_step(table, int(seen.runs[row])):.3f}"
        cells = [f"{speed:.1f}", f"{seen.speedup(row):.3f}", f"{low:.3f} – {high:.3f}", steps]
        rows.append((name, *cells, short((parts["policy"] + parts["head"]) * 1e3)))
    console = page()
    say(made(heads, rows), console)
    for name in losses(table, seen):
        console.print(f"note: {name} is a loss: its own time eats its gain", markup=False)
    differ = sum(
        found[n, job.sequence].outputs != found[0, job.sequence].outputs
        for job in jobs
        for n in range(1, len(arms))
    )
    if differ:
        console.print(f"{how_many(differ, 'output differs', 'outputs differ')} from the target's")
    status = 0
    for drift in drifts(seen):
        console.print(f"control: {drift}", soft_wrap=True, highlight=False, markup=False)
        if not drift.agrees:
            Console(stderr=True).print(
                f"simkit: {drift.complaint}", soft_wrap=True, highlight=False
            )
            status = 1
    return status


def _tokens_per_step(log: pa.Table, run: int) -> float:
    """Of each sequence: a step of a batch is one of every sequence that is in it."""
    import pyarrow.compute as pc

    mine = log.filter(pc.field("run") == run)
    tokens = mine.filter(pc.field("kind") == "sequence")["tokens_in"].to_numpy()
    steps = mine.filter((pc.field("kind") == "step") & (pc.field("step") > 0))["batch_size"]
    return tokens.sum() / max(steps.to_numpy().sum(), 1)
