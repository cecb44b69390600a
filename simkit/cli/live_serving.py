"""`simkit live --concurrency N`: a real server, under controllers in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simkit.cli.live_options import LiveOptions
    from simkit.live.decoder import Request
    from simkit.live.decoders import LiveServed
    from simkit.live.served import ServedRun
    from simkit.live.settings import DecoderSettings
    from simkit.serving.controllers import Controller
    from traces.record.pair import Pair


def live_serving(asked: LiveOptions, settings: DecoderSettings) -> int:
    """Serve prompts under several controllers in turns, and log every iteration."""
    from simkit import costs
    from simkit.cli.progress import decoding_bar
    from simkit.cli.running import load_models
    from simkit.errors import LiveError
    from simkit.live.rotation import use_threads
    from simkit.live.serving_arms import ServingArm, ServingBench, run, times_of
    from simkit.overwrite_guard import check_apart
    from simkit.serving.controllers import Nothing
    from traces.record.statistics_triton import can_run_for

    names = asked.pair
    if asked.concurrency is None or not asked.controller:
        raise LiveError("--controller and --concurrency belong together: give both")
    others = ("policy", "head", "trace", "drafter", "batch_size", "stop", "clock")
    asked.refuse(others, "{} cannot be used with --concurrency, which needs --controller")
    chosen = _checked(asked, asked.concurrency, asked.controller, settings)
    check_apart([("--out", asked.out)], [names.target, names.draft, asked.prompts])
    use_threads(asked.threads)
    pair = load_models(names)
    settings = replace(settings, eos_token_ids=pair.eos_token_ids, kernel=can_run_for(pair))
    budget = settings.max_new_tokens
    times = times_of(costs.parse(asked.cost), pair, budget) if asked.cost else None
    bench = ServingBench(pair, settings, asked.concurrency, times, asked.turns or "step")
    requests = _requests(asked, pair, chosen)
    # The target alone, every controller, and the first one again.
    arms = [ServingArm(one, requests) for one in (Nothing(), *chosen, chosen[0])]
    runs: list[ServedRun] = []
    try:
        with decoding_bar(asked.rounds * len(arms)) as tick:
            found = run(bench, arms, asked.rounds, runs, tick)
    finally:
        _write(asked, pair, runs)
    return _report(runs, found)


def _checked(
    asked: LiveOptions, concurrency: int, controllers: list[str], settings: DecoderSettings
) -> list[Controller]:
    """The controllers, each once, if they can run live."""
    from simkit.errors import LiveError
    from simkit.live.live_controllers import decider, needs_prices
    from simkit.serving import parse
    from simkit.serving.controllers import Nothing
    from traces.outputs import check_room

    numbers = concurrency, asked.rounds, settings.max_new_tokens
    if min(*numbers, 1 if asked.n_prompts is None else asked.n_prompts) < 1:
        raise LiveError("concurrency, rounds, prompts and max_new_tokens must be at least 1")
    if asked.out is not None:
        if asked.out.suffix != ".parquet":
            raise LiveError(f"-o {asked.out}: must be a .parquet file")
        check_room(asked.out)
    found = {str(one): one for one in map(parse, controllers)}
    chosen = [one for one in found.values() if not isinstance(one, Nothing)]
    if not chosen:
        raise LiveError("no controller to run: give --controller; none always runs as the baseline")
    for one in chosen:
        if needs_prices(one) and asked.cost:
            continue  # bound to its prices later
        decider(one, settings)
    return chosen


def _requests(asked: LiveOptions, pair: Pair, chosen: list[Controller]) -> tuple[Request, ...]:
    from simkit.live.decoder import Request

    prompts = asked.spread_prompts(pair.tokenizer, pair.vocab_size)
    budget = asked.max_new_tokens
    most = max(min(one.max_draft, budget - 1) for one in chosen)
    longest = max(map(len, prompts.values())) + budget + most
    asked.check_longest(longest, "pair", pair.context_len)
    pair.prove(longest)
    return tuple(Request(k, tokens) for k, tokens in prompts.items())


def _write(asked: LiveOptions, pair: Pair, runs: list[ServedRun]) -> None:
    """Write the log, also that of a run that broke off: the arms that were whole."""
    from simkit.live import served
    from traces.conditions import Conditions
    from traces.record.header import device_name, library_versions, model_info

    if asked.out is None or not runs:
        return
    facts = {
        "device": device_name(pair.target),
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "engine": "eager",
        "max_new_tokens": str(asked.max_new_tokens),
        "turns": asked.turns or "step",
        **Conditions().of_models(*map(model_info, (pair.target, pair.draft))).facts,
        **library_versions(),
    }
    served.write(asked.out, served.table(runs, facts))


def _report(runs: list[ServedRun], found: dict[int, LiveServed]) -> int:
    """Print throughputs, and whether they can be believed; the exit status."""
    import numpy as np

    from simkit.cli.running import say_control
    from simkit.cli.tables import page, say, table
    from simkit.format_ratio import short
    from simkit.live.serving_summary import summary

    arms = summary(runs)
    heads = "controller", "tokens/s", "x none", "95% interval", "emitted/step"
    rows = []
    for row, name in enumerate(arms.names):
        low, high = arms.interval(row)
        steps = [s for i in found[int(arms.runs[row])].iterations for s in i.steps]
        emitted, drafted = sum(s.emitted for s in steps), sum(s.drafted for s in steps)
        cells = (
            f"{arms.tokens_s[row]:.1f}",
            f"{arms.tokens_s[row] / arms.tokens_s[0]:.3f}",
            f"{low:.3f} – {high:.3f}",
            f"{emitted / max(len(steps), 1):.3f}",  # that of the prompt's pass is of no step
            f"{drafted / max(len(steps), 1):.2f}",
            short(float(np.nanmedian(arms.token_s[row])) * 1e3),
            short(arms.policy_s[row] / arms.iterations[row] * 1e3),
        )
        rows.append((name, *cells))
    console = page()
    say(table((*heads, "length", "TPOT ms", "controller ms"), rows), console)
    differ = sum(
        one.outputs[k] != found[0].outputs[k]
        for one in found.values()
        for k in range(len(one.outputs))
    )
    if differ:
        several = len(found[0].outputs) * (len(found) - 1)
        console.print(f"{differ} of {several} outputs differ from the target's")
    return say_control(arms.drifts(), console)
