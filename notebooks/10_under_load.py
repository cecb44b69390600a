# %% [markdown]
# # 10 · Under load
#
# Drafts pay with time that one request leaves unused. A server has many requests, and less of such
# time: each token that is verified in vain takes the place of one of somebody else's. Here requests
# of a recorded trace are served together, on one clock, under rules that engines have.
#
# A request's outcomes are the trace's own and exact. What hangs on the schedule, batches, lengths that
# follow them, waiting, is exact given the simulated schedule, not beyond it. Times are those of
# Qwen3-8B and Qwen3-0.6B on an H200, from the [latency atlas](../docs/costs.md#the-latency-atlas); acceptance is
# that of the small bundled pair.

# %%
import polars as pl

import simkit
from analysis import Study, figures, serving

_ = pl.Config.set_tbl_rows(20)

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## Does what wins at batch 1 win at 64?

# %%
study = Study(TRACE)
figures.load_crossover(study)

# %% [markdown]
# **What it shows.** With one request in flight a token a step is worth 1.06 [1.04, 1.08]; with 64 it is
# at 0.83, with 256 at 0.61. It falls below no drafts at about 20 in flight, [11, 36]; three tokens are not told from none up to
# 16 and lose from 32 on; five and seven lose everywhere. `ema` follows three tokens up to 16 in flight, is at 0.94
# [0.88, 1.00] with 32, and hardly drafts from 64 on, where it is within a hundredth of none. `budget` verifies less than it drafts, but drafts seven a step, and here a draft pass takes
# half as long as the target's: it is where `static(7)` is. And `prophet`, which knows what will be
# accepted, is at 1.48 alone, and below none from 4 requests on: a round of drafting lasts as long for one
# request as for all, and the longest draft of the batch sets how many there are. It is no bound of a batch.
#
# **The engines'.** The shape agrees with what they publish: vLLM #52362 has fixed 7 behind none from
# somewhere above 32 requests on (at 256: 7,852 tokens a second to 8,879), SGLang switches drafts off from 64 on. Their
# crossing lies further to the right: their drafts cost less.
#
# **Caveat.** Behind a batch of 64 nothing was timed, and times go on in a line. How a run starts and ends is left
# out: at its end a few long outputs are alone, and batches are no longer full.

# %% [markdown]
# ## And where drafts are cheap?
#
# Qwen2.5-32B with a draft model of 0.5B: a draft pass takes an eighth of the target's.

# %%
CHEAP = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
over = ["steady_against", "steady_against_lo", "steady_against_hi"]
shown = ["controller", "value", "steady_tokens_s", *over, "length"]
lengths = ["none", "static(1)", "static(3)", "static(7)", "ema", "goodput"]
true = simkit.serve(TRACE, lengths, CHEAP, concurrency=[1, 16, 64], requests=1024, seeds=4)
true.frame.select(shown)

# %% [markdown]
# **What it shows.** `value` is the concurrency, `steady_against` the throughput over that of none. Alone, three tokens are at 1.78 ±0.19
# and `ema` at 1.86 ±0.18; with 64 in flight the order is turned round: one token first, at 1.13 ±0.07, then three, 1.09 ±0.12, and
# seven are at 0.87 ±0.14. Intervals are over prompts, so they are wide. `goodput`, which knows the times, is within the intervals of the best length at each load.
#
# **The engines'.** SpecDecode-Bench has the same turn: at batch 1 five tokens lead three and one, at 64 three lead five.

# %% [markdown]
# ## Who wins where: drafters
#
# PARD-2's Fig. 1: what a user gets against what the device gives, for batches of 1 to 64.

# %%
figures.load_frontier(study)

# %% [markdown]
# **What it shows.** `suffix` is far ahead at every batch, 286 tokens a second at batch 1 and 9,400 on the device at 64 with
# three tokens, because the greedy outputs loop and its drafts cost no pass. PARD-2, one pass a draft, is ahead of the draft
# model with three tokens at batch 1 (149 tokens a second to 120) and behind no drafts at 64 (4,430 to 5,860). The table by batch size
# gives up what a large batch does not pay for, and at 64 has more on the device for the draft model (4,890 to 4,190), less for
# `suffix`, for which length costs nothing to draft.
#
# **The paper's.** In Fig. 1 PARD-2 stays ahead up to 64; here it does not: its drafts are accepted less often.
#
# **Caveat.** The passes of `pard2` and `eagle` are priced as those of the 0.6B model, which is unkind to an EAGLE
# chain of one layer.

# %% [markdown]
# ## How long does one wait?

# %%
figures.load_latency(study)

# %% [markdown]
# **What it shows.** Drafts trade one latency for another. At 3 requests a second the median time per token is
# lower with one token drafted, 8 ms to 9; its 99th percentile is higher, 13 ms, and 22 ms with three: requests
# whose drafts fail pay for them. The first token comes later as well, 39 and 63 ms to 23, since the draft
# model reads the prompt too, and a prompt waits for longer iterations. Each server bends up where it saturates:
# at 23 requests a second with three tokens, 27 with one, 31 under `ema`, which then hardly drafts, 32 with none.

# %% [markdown]
# ## What do controllers do in a burst?

# %%
figures.load_timeline(study)

# %% [markdown]
# **What it shows.** `ema` and `by_batch` verify three tokens a request before the burst and one or none in it, and have emptied the
# queue soon after; `budget` goes on with four to seven, since it looks at what tokens promise and not at the draft passes
# behind it, and is busy for some five seconds longer.

# %% [markdown]
# ## How many are served in time?

# %%
figures.load_goodput(study)

# %% [markdown]
# **What it shows.** Under limits on each request's first token and on its time per token, none serves most: 13.9 [11.6, 16.1] a second at a rate
# of 17, to 8.7 [4.7, 12.7] with one token, 7.5 under `ema`, 6.1 with three. Every rule here is fair to the batch's throughput,
# and none looks at the request that falls behind. `goodput`, which maximises tokens a second, is where one token is.

# %% [markdown]
# ## A controller of one's own
#
# A function of what a scheduler sees. `serving.fewer` drafts four tokens, and one fewer each time that the
# batch doubles:
#
#     def fewer(view):
#         return max(0, 5 - len(view.request).bit_length())
#
# It is plain Python, so that fewer requests are served here.

# %%
own = ["none", "static(1)", serving.fewer]
few = simkit.serve(TRACE, own, CHEAP, concurrency=[1, 16], requests=256, seeds=3)
few.frame.select(shown)

# %% [markdown]
# **What it shows.** Alone it drafts four tokens and is at 1.80 ±0.10, ahead of one token (1.46 ±0.06); with 16 in flight it
# drafts none most of the time and is at 1.03 ±0.01, behind one token (1.35 ±0.06): it gives up too early. With a state, or
# feedback, a controller is a subclass of `simkit.serving.Plain`.

# %% [markdown]
# ## Drawn outcomes against true ones
#
# vLLM can be told rates of acceptance by depth and draws outcomes from them, and so can the simulator.
# Here they are the trace's own conditional rates.

# %%
depths = figures.drafters_by_depth(study).frame
rates = depths.filter(drafter="own", positions="all", series="conditional").sort("depth")
given = rates["acceptance"].to_list()[:7]
drawn = simkit.serve(
    TRACE, lengths, CHEAP, concurrency=[1, 16, 64], requests=1024, seeds=4, rates=given
)
drawn.frame.select(shown)

# %% [markdown]
# **What it shows.** Intervals are much narrower, ±0.01 where true outcomes have ±0.19, and the figures are lower:
# three tokens alone at 1.65 for 1.78, seven at 1.58 for 1.67; with 64 in flight three at 1.01 for 1.09. The rates are those of
# the longest drafts, whose steps begin behind a rejection more often: 0.62 for the first token, where drafts of three have 0.69.
# `ema` at batch 1 does not leave three tokens (2.97 on average, 3.19 with true outcomes), for there are no stretches to adapt to.
#
# **Caveat.** Drawn outcomes are independent of each other. A trace's are not: some outputs are easy from
# beginning to end, and others never.

# %% [markdown]
# ## Now with your trace
#
# Put its folder into the first cell. Give the figures a `cost`: `simkit latency --grid` times batches on your
# machine. `simkit serving TRACE --controller ema --rate 5` prints the same tables.
