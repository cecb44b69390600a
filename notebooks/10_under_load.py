# %% [markdown]
# # 10 · Under load
#
# With one request at a time a device has capacity to spare, and verifying drafts uses it. A server
# with many requests has less to spare: each token that is verified and rejected takes the place of
# another request's token. Here a simulated server runs many requests of a recorded trace at once,
# under rules that engines use.
#
# What a request accepts is recorded in the trace and exact. Batches, waiting and draft lengths that
# follow the load depend on the schedule, which is simulated. Times are those of Qwen3-8B and
# Qwen3-0.6B on an H200, from the [latency atlas](../docs/costs.md#the-latency-atlas); acceptance is
# that of the toy pair that comes with simkit.

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
# **What it shows.** The numbers are throughputs relative to no drafts. With one request in flight,
# drafting one token a step has 1.06 [1.04, 1.08]; with 64 it has 0.83, with 256 0.61. It falls
# below 1 at about 20 requests in flight, [11, 36]. Three tokens do not differ measurably from none
# up to 16 requests and lose from 32 on; five and seven lose everywhere. `ema` does as well as three
# tokens up to 16 in flight, has 0.94 [0.88, 1.00] with 32, and hardly drafts from 64 on, where it
# is within 1% of no drafts. `budget` verifies fewer tokens than it drafts. But it drafts seven a
# step, and here a draft pass takes half as long as a target pass, so it is as slow as `static(7)`.
# `prophet`, which knows what will be accepted, has 1.48 with one request, and less than no drafts
# from 4 requests on: all requests wait for the draft passes of the longest draft in the batch. So
# `prophet` is no upper bound for a batch.
#
# **The engines'.** The shape agrees with published results. In vLLM #52362 seven tokens fall behind
# no drafts somewhere above 32 requests (at 256: 7,852 against 8,879 tokens a second). SGLang
# switches drafts off from 64 requests on. Drafts stop paying at more requests there than here,
# because they cost less.
#
# **Caveat.** Batches over 64 were not timed; their times are extrapolated linearly. The start and
# the end of each run are left out, because batches are not full then.

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
# **What it shows.** `value` is the concurrency, `steady_against` the throughput over that of none.
# With one request, three tokens have 1.78 ±0.19 and `ema` 1.86 ±0.18. With 64 in flight the order
# is reversed: one token is first, 1.13 ±0.07, then three, 1.09 ±0.12, and seven have 0.87 ±0.14.
# Intervals are over prompts and therefore wide. `goodput`, which is given the times, is within the
# interval of the best length at each load.
#
# **The engines'.** SpecDecode-Bench finds the same reversal: at batch 1 five tokens are faster than
# three and one, at 64 three are faster than five.

# %% [markdown]
# ## Who wins where: drafters
#
# Like PARD-2's Fig. 1, the figure shows tokens a second of one user and of the whole device, for
# batches of 1 to 64.

# %%
figures.load_frontier(study)

# %% [markdown]
# **What it shows.** `suffix` is far ahead at every batch, 286 tokens a second at batch 1 and 9,400
# on the device at 64 with three tokens, because the greedy outputs loop and its drafts cost no
# pass. PARD-2, which drafts in one pass, is ahead of the draft model with three tokens at batch 1
# (149 against 120 tokens a second) and behind no drafts at 64 (4,430 against 5,860). The table by
# batch size drafts less in large batches. At 64 that gives the draft model more throughput (4,890
# against 4,190) and `suffix` less, because longer `suffix` drafts cost nothing.
#
# **The paper's.** In Fig. 1 PARD-2 stays ahead up to 64; here it does not: its drafts are accepted less often.
#
# **Caveat.** The passes of `pard2` and `eagle` are priced as those of the 0.6B model. That is too
# expensive for an EAGLE chain of one layer.

# %% [markdown]
# ## How long does one wait?

# %%
figures.load_latency(study)

# %% [markdown]
# **What it shows.** Drafts lower one latency and raise another. At 3 requests a second the median
# time per token is 8 ms with one token drafted, 9 ms without drafts. But its 99th percentile is
# higher: 13 ms with one token, 22 ms with three, because requests whose drafts are rejected still
# pay for drafting. The first token comes later, too: after 39 ms with one token and 63 ms with
# three, instead of 23 ms. The draft model must read the prompt as well, and a new prompt waits for
# longer iterations. Each curve bends upwards where its server saturates: at 23 requests a second
# with three tokens, 27 with one, 31 under `ema`, which then hardly drafts, and 32 without drafts.

# %% [markdown]
# ## What do controllers do in a burst?

# %%
figures.load_timeline(study)

# %% [markdown]
# **What it shows.** `ema` and `by_batch` verify three tokens a request before the burst and one or
# none in it, and have emptied the queue soon after. `budget` goes on with four to seven and is busy
# for about five seconds longer: it weighs how likely tokens are to be accepted, but not what
# drafting them costs.

# %% [markdown]
# ## How many are served in time?

# %%
figures.load_goodput(study)

# %% [markdown]
# **What it shows.** Each request has a limit on the time to its first token and on its time per
# token. When 17 requests arrive a second, most are served in time without drafts: 13.9 [11.6, 16.1]
# a second, against 8.7 [4.7, 12.7] with one token, 7.5 under `ema` and 6.1 with three. All rules
# here look at the whole batch, and no rule helps the request that falls behind. `goodput`, which
# maximises tokens a second, does as well as one token.

# %% [markdown]
# ## A controller of one's own
#
# A controller can be a function of what a scheduler sees. `serving.fewer` drafts four tokens, and
# one fewer each time that the batch doubles:
#
#     def fewer(view):
#         return max(0, 5 - len(view.request).bit_length())
#
# It is plain Python, and slow, so this run has fewer requests.

# %%
own = ["none", "static(1)", serving.fewer]
few = simkit.serve(TRACE, own, CHEAP, concurrency=[1, 16], requests=256, seeds=3)
few.frame.select(shown)

# %% [markdown]
# **What it shows.** With one request it drafts four tokens and has 1.80 ±0.10, more than one token
# (1.46 ±0.06). With 16 in flight it drafts nothing most of the time and has 1.03 ±0.01, less than
# one token (1.35 ±0.06): it stops drafting too early. A controller that needs a state or feedback
# is a subclass of `simkit.serving.Plain`.

# %% [markdown]
# ## Drawn outcomes against true ones
#
# vLLM can draw outcomes from given acceptance rates by depth, and so can the simulator. Here the
# rates are the trace's own conditional ones.

# %%
depths = figures.drafters_by_depth(study).frame
rates = depths.filter(drafter="own", positions="all", series="conditional").sort("depth")
given = rates["acceptance"].to_list()[:7]
drawn = simkit.serve(
    TRACE, lengths, CHEAP, concurrency=[1, 16, 64], requests=1024, seeds=4, rates=given
)
drawn.frame.select(shown)

# %% [markdown]
# **What it shows.** Intervals are much narrower, ±0.01 instead of ±0.19 with true outcomes, and
# speeds are lower: with one request three tokens have 1.65 instead of 1.78, and seven 1.58 instead
# of 1.67; with 64 in flight three have 1.01 instead of 1.09. The rates were taken from the longest
# drafts. Their steps start after a rejection more often, so the first token's rate is 0.62, while
# drafts of three have 0.69. `ema` at batch 1 stays near three tokens (2.97 on average, 3.19 with
# true outcomes), because drawn outcomes have no easy stretches to adapt to.
#
# **Caveat.** Drawn outcomes are independent of each other. A trace's are not: some outputs are easy
# throughout, others hard throughout.

# %% [markdown]
# ## Now with your trace
#
# Put its folder into the first cell. Give the figures a `cost`: `simkit latency --grid` times batches on your
# machine. `simkit serving TRACE --controller ema --rate 5` prints the same tables.
