# %% [markdown]
# # 10 · Under load
#
# With one request at a time a device has capacity to spare, and verifying drafts uses it. A server
# with many requests has less to spare: each token that is verified and rejected takes the place of
# another request's token. Here a simulated server runs many requests of a recorded trace at once,
# under rules that engines use. What a request accepts is recorded and exact. Batches, waiting and
# draft lengths that follow the load depend on the schedule, which is simulated.

# %%
import polars as pl

import simkit
from analysis import Study, figures, serving

_ = pl.Config.set_tbl_rows(20)

# %% [markdown]
# The target is SmolLM2-135M-Instruct, a small chat model, greedy, on 56 prompts. Its draft `q3-g32`
# is the same model rounded to 3 bits a weight: 80% of its tokens are accepted, as in the papers
# ([ladder](../docs/ladder.md)). Such a draft is the target with noise, not an independent small
# model, and as slow as its target. So `COST` names the times of another pair, Qwen2.5-32B with
# Qwen2.5-0.5B on an H200 GPU ([costs](../docs/costs.md#the-latency-atlas)). There a draft pass
# takes an eighth of the target's. One section uses a toy pair, `reference`.

# %% tags=["parameters"]
TRACE = "ladder/drafters/q3-g32"
COST = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
TOY = "reference"

# %% [markdown]
# ## Does what wins at batch 1 win at 64?

# %%
study = Study(TRACE)
figures.load_crossover(study, cost=COST)

# %% [markdown]
# **What it shows.** The numbers are throughputs relative to no drafts. With one request in flight,
# five tokens a step have 2.07 [1.89, 2.25], three 1.98 [1.87, 2.08], and one 1.53 [1.49, 1.56].
# With 64, one, three and five have 1.10 to 1.13 and do not differ measurably. With 256, all fixed
# lengths lose: one token has 0.92 [0.90, 0.94], seven have 0.72 [0.59, 0.85]. Seven fall below 1 at
# about 73 requests in flight, [53, 101], three at 106 [93, 121], one at 128 [113, 146]. `ema` is at
# least as fast as three tokens up to 16 in flight. From 64 on it hardly drafts, although three
# tokens still gain 13% [9%, 16%] at 64. `budget` drafts seven tokens and verifies fewer; from 64
# requests on it is faster than `static(7)`. `prophet`, which knows what will be accepted, has 2.97
# [2.68, 3.25] with one request. With 16 it is slower than five tokens, 1.46 against 1.66: all
# requests wait for the draft passes of the longest draft in the batch. So `prophet` is no upper
# bound for a batch.
#
# **The engines'.** The shape agrees with published results. In vLLM #52362 seven tokens fall behind
# no drafts somewhere above 32 requests (at 256: 7,852 against 8,879 tokens a second). SGLang
# switches drafts off from 64 requests on. In SpecDecode-Bench five tokens are faster than three at
# batch 1 and slower at 64. Here they are faster at 1, too; at 64 they do not differ measurably.
#
# **Caveat.** Batches over 64 were not timed; their times are extrapolated linearly. The start and
# the end of each run are left out, because batches are not full then.

# %% [markdown]
# ## And where drafts are expensive?
#
# Qwen3-8B with a draft model of 0.6B (`serving.COST`): a draft pass takes half as long as the
# target's.

# %%
over = ["steady_against", "steady_against_lo", "steady_against_hi"]
shown = ["controller", "value", "steady_tokens_s", *over, "length"]
lengths = ["none", "static(1)", "static(3)", "static(7)", "ema", "goodput"]
expensive = simkit.serve(
    TRACE, lengths, serving.COST, concurrency=[1, 16, 64], requests=1024, seeds=4
)
expensive.frame.select(shown)

# %% [markdown]
# **What it shows.** `value` is the concurrency, `steady_against` the throughput over that of none.
# With one request, one token has 1.10 ±0.03, three have 1.07 ±0.06, and seven 0.83 ±0.11. With 16,
# one token is the only fixed length that gains, 1.03 ±0.01. With 64, all fixed lengths lose: one
# token has 0.84 ±0.02, three have 0.78 ±0.03. `ema` stops drafting there and does not differ
# measurably from none. `goodput` decides by a linear fit to the times. It gains with one request
# and with 16; with 64 it still drafts one token, and is as slow as `static(1)`.

# %% [markdown]
# ## Who wins where: drafters
#
# Like PARD-2's Fig. 1, the figure shows tokens a second of one user and of the whole device, for
# batches of 1 to 64. It uses the toy pair's `reference`, because several kinds of drafter are
# attached to it. Of the tokens of its draft model, `own`, 72% are accepted.

# %%
figures.load_frontier(Study(TOY), cost=COST)

# %% [markdown]
# **What it shows.** With three tokens, `suffix` is ahead at every batch: 111 [98, 124] tokens a
# second for a user at batch 1, and 3,750 [3,480, 4,020] on the device at 64, because the greedy
# outputs loop and its drafts cost no pass. PARD-2, which drafts in one pass, and the draft model do
# not differ measurably at batch 1 (89 and 92 tokens a second). At 64 the draft model is ahead of
# PARD-2 (2,530 against 2,230), which does not differ measurably from no drafts (2,320). The table
# by batch size (`by_batch`) drafts less in large batches. At 64 that gives PARD-2 more throughput,
# 2,590 [2,540, 2,630], and `suffix` less, because longer `suffix` drafts cost nothing.
#
# **The paper's.** In Fig. 1 PARD-2 stays ahead up to 64. Here it is ahead of no drafts at 64 only
# with `by_batch`: its drafts are accepted less often.
#
# **Caveat.** The passes of `pard2` and `eagle` are priced as those of the 0.5B model. That is too
# expensive for an EAGLE chain of one layer.

# %% [markdown]
# ## How long does one wait?

# %%
figures.load_latency(study, cost=COST)

# %% [markdown]
# **What it shows.** Drafts lower one latency and raise another. At 3 requests a second the median
# time per token is 13 ms [11, 15] with three tokens, 17 ms [16, 18] with one, and 25 ms [24, 26]
# without drafts. The 99th percentile is lower, too: 20 ms with three and 21 ms with one, instead of
# 28 ms. Three and one do not differ measurably there, because requests whose drafts are rejected
# still pay for drafting. The first token comes later: after 109 ms with three and 89 ms with one,
# instead of 74 ms. The draft model must read the prompt as well, and a new prompt waits for longer
# iterations. Each curve bends upwards where its server saturates: at 12.6 requests a second without
# drafts and under `ema`, which then hardly drafts, 14.0 with one token, and 14.3 with three.

# %% [markdown]
# ## What do controllers do in a burst?

# %%
figures.load_timeline(study, cost=COST)

# %% [markdown]
# **What it shows.** Before the burst `ema` verifies three tokens a request, `by_batch` three to
# five, and `budget` five to six. In the burst `budget` verifies three to four, `by_batch` one,
# and `ema` none. Drafts still pay with 64 requests in flight, so `ema`'s batch stays full about a
# second longer.

# %% [markdown]
# ## How many are served in time?

# %%
figures.load_goodput(study, cost=COST)

# %% [markdown]
# **What it shows.** Each request has a limit on the time to its first token and on its time per
# token, 27 ms. When 8.8 requests arrive a second, most miss the second limit without drafts: 0.6
# [0, 1.5] a second are served in time, against 7.5 [6.1, 9.0] with one token and 7.9 [6.8, 9.0]
# with three. At higher rates the rules that draft do not differ measurably. All rules here look at
# the whole batch, and no rule helps the request that falls behind.

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
few = simkit.serve(TRACE, own, COST, concurrency=[1, 16], requests=256, seeds=3)
few.frame.select(shown)

# %% [markdown]
# **What it shows.** With one request it drafts four tokens and has 2.07 ±0.21, more than one token
# (1.53 ±0.05). With 16 in flight it drafts nothing most of the time and has 1.03 ±0.01, less than
# one token (1.35 ±0.04): it stops drafting too early. A controller that needs a state or feedback
# is a subclass of `simkit.serving.Plain`.

# %% [markdown]
# ## Drawn outcomes against true ones
#
# vLLM can draw outcomes from given acceptance rates by depth, and so can the simulator. Here the
# rates are the trace's own conditional ones, and the times those of `COST`.

# %%
rates = figures.position_decay(study).frame.filter(series="conditional").sort("depth")
given = {"true": None, "drawn": rates["acceptance"].to_list()[:7]}
pl.concat(
    simkit.serve(
        TRACE, lengths[:-1], COST, concurrency=[1, 64], requests=1024, seeds=4, rates=r
    ).frame.select(pl.lit(name).alias("outcomes"), *shown)
    for name, r in given.items()
)

# %% [markdown]
# **What it shows.** With one request intervals are much narrower, ±0.02 instead of ±0.12 for three
# tokens, and speeds are lower: three tokens have 1.84 instead of 1.98, and with 64 in flight 1.07
# instead of 1.13. The rates were taken from drafts of 16 tokens. Their steps start after a
# rejection more often, so the first token's rate is 0.71, while drafts of three have 0.76. `ema` at
# batch 1 stays near three tokens (3.01 on average, 3.55 with true outcomes), because drawn outcomes
# have no easy stretches to adapt to.
#
# **Caveat.** Drawn outcomes are independent of each other. A trace's are not: some outputs are easy
# throughout, others hard throughout.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` and `TOY` to its folder, and `COST` to its times: `simkit latency --grid` times
# batches on your machine. `simkit serving TRACE --controller ema --rate 5` prints the same tables.
