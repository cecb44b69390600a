"""`simkit live`: real speculative decoding, timed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simkit.cli.engine_options import EngineChoice
from simkit.cli.groups import grouped
from simkit.cli.live_options import LiveOptions
from simkit.cli.options import Drawing
from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.cli.running import Ran
    from simkit.live.rotation import Arm, Bench, LiveJob
    from simkit.live.settings import DecoderSettings
    from simkit.policies import Sequential


@grouped
def live(asked: LiveOptions, choice: EngineChoice, drawing: Drawing) -> int:
    """Decode prompts under several policies in turns, and log every pass.

    With --engine a real engine runs each policy as simkit export writes it, on a trace's prompts.
    """
    if choice.given:
        from simkit.cli.live_engine import live_engine

        return live_engine(asked, choice, drawing)
    from simkit.cli.live_serving import live_serving
    from simkit.cli.live_trees import is_tree, live_trees
    from simkit.errors import LiveError
    from simkit.live.settings import DecoderSettings
    from simkit.overwrite_guard import check_apart
    from traces.record.prompts import check_file

    if asked.recorded is not None:
        raise LiveError(f"{asked.recorded}: a trace needs --engine or --url; else give --prompts")
    prompts = asked.prompts_file
    if not asked.target:
        raise LiveError("give --target and --prompts, or a trace and --engine")
    check_apart([("--out", asked.out)], [prompts])
    check_file(prompts)
    sampler, first = drawing.sampler(), asked.first_token
    settings = DecoderSettings(sampler, drawing.seed, asked.max_new_tokens, (), first)
    policy = asked.policy
    if policy and (not asked.draft or asked.clock != "wall" or is_tree(policy)):
        if not is_tree(policy):
            raise LiveError(
                "give --draft; --drafter 'feature(…)' and --clock are only for tree policies"
            )
        return _report(live_trees(asked, settings))
    if asked.concurrency is not None or asked.controller:
        return live_serving(asked, settings)
    return _report(_chains(asked, settings))


def _chains(asked: LiveOptions, settings: DecoderSettings) -> Ran:
    """Run policies that draft chains."""
    from simkit.cli.running import load_bench, prepare, ran, warn_of_heads
    from simkit.live.rotation import use_threads
    from simkit.overwrite_guard import check_apart, files_of
    from traces.record.header import model_info

    asked.refuse(("cost",), "{} needs --controller and --concurrency: policies take none")
    names, rounds = asked.pair, asked.rounds
    n_prompts = 1 if asked.n_prompts is None else asked.n_prompts
    numbers = (rounds, asked.batch_size, asked.max_new_tokens, n_prompts)
    chosen, heads = prepare(asked.policy or [], asked.head, settings, numbers)
    destination, folder = _destination(asked.out, asked.trace, asked.drafter)
    read = [names.target, names.draft, asked.prompts, *files_of(asked.head)]
    check_apart([("--out", asked.out)], read)
    use_threads(asked.threads)
    bench = load_bench(names, settings, heads, asked.turns or "sequence", asked.stop)
    warn_of_heads(heads, target=model_info(bench.pair.target), draft=model_info(bench.pair.draft))
    _settle_kernel(bench, asked.trace, asked.drafter)
    jobs, arms = _jobs(bench, asked, chosen)
    return ran(bench, arms, jobs, rounds, destination, folder)


def _jobs(
    bench: Bench, asked: LiveOptions, policies: list[Sequential]
) -> tuple[list[LiveJob], list[Arm]]:
    """The target alone, every policy, and the first one again; each on all prompts."""
    from simkit.errors import LiveError
    from simkit.live.rotation import Arm, LiveJob
    from traces.record.prompts import read_prompts

    pair, size = bench.pair, asked.batch_size
    rows = read_prompts(asked.prompts_file, pair.tokenizer, pair.vocab_size)
    arms = [Arm(), *(Arm(policy) for policy in policies), Arm(policies[0])]
    wanted = len(rows) if asked.n_prompts is None else min(asked.n_prompts, len(rows))
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
    asked.check_longest(longest, "pair", pair.context_len)
    pair.prove(longest)
    groups = [numbers[k : k + size] for k in range(0, wanted, size)]
    every = tuple(range(len(arms)))
    return [LiveJob(tuple(rows[n].tokens for n in some), some[0], every) for some in groups], arms


def _destination(
    out: Path | None, trace: Path | None, drafter: str | None
) -> tuple[Path | None, Path | None]:
    """Where the log goes, and the folder of its trace; found out before anything is measured."""
    from simkit.errors import LiveError
    from traces.outputs import check_room
    from traces.trace import load
    from traces.writer import folder_to_write

    if out and trace:
        raise LiveError("give -o or --trace, not both")
    if drafter and not trace:
        raise LiveError("--drafter names one that is attached to a trace: give --trace")
    if out and out.suffix != ".parquet":
        raise LiveError(f"-o {out}: must be a .parquet file")
    if trace:
        there = load(trace, drafter)
        folder = folder_to_write(there, str(trace), "give -o FILE.parquet").resolve()
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


def _report(ran: Ran) -> int:
    """Print speeds, and whether they can be believed; the exit status."""
    from simkit.cli.running import say_control
    from simkit.cli.tables import page, say
    from simkit.cli.tables import table as made
    from simkit.format_ratio import short
    from simkit.live.summary import drifts, losses, per_step, sequences

    log, found, arms, jobs = ran
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
        said = "is slower than no speculation: its decisions cost more than they save"
        console.print(f"note: {name} {said}", markup=False)
    differ = sum(
        found[n, job.sequence].outputs != found[0, job.sequence].outputs
        for job in jobs
        for n in range(1, len(arms))
    )
    if differ:
        console.print(f"{how_many(differ, 'output differs', 'outputs differ')} from the target's")
    return say_control(drifts(seen), console)


def _tokens_per_step(log: pa.Table, run: int) -> float:
    """The mean of a + 1, as a replay has it; a step of a batch is one of each sequence in it."""
    import pyarrow.compute as pc

    mine = (pc.field("run") == run) & (pc.field("kind") == "step") & (pc.field("step") > 0)
    steps = log.filter(mine)
    n, accepted = (steps[name].to_numpy().sum() for name in ("batch_size", "accepted"))
    return 1 + accepted / max(n, 1)
