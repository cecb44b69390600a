# %% [markdown]
# # 05 · Comparing policies
#
# A policy says when the draft model stops. Which policy is the fastest, and how sure can one be?
# Every paper answers with a table of speeds; none of the five says how far the numbers would move
# on other prompts. Here policies are replayed on one trace, compared prompt by prompt with
# intervals, tuned on prompts other than those they are judged by, and held against the fastest that
# any policy could have been.

# %%
import polars as pl

import analysis
import simkit
import traces
from analysis import figures
from analysis.stats import compare

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## How fast is each policy?
#
# A trace holds what both models said at every position of every text, so a replay knows each step
# that a policy would have taken. The seconds come from running decoders of the same two models on
# one CPU thread: medians of passes, of each rule's decisions, of heads, and what a step's loop takes.

# %%
trace = traces.load(TRACE)
specs = [
    "fixed(4)",
    "fixed(5)",
    "svip(h=1.4)",
    "heuristic(initial=7)",
    "confidence(threshold=0.3)",
    "oracle",
]
result = simkit.replay(trace, specs)
result

# %% [markdown]
# **What it shows.** Speedup is over decoding with the target alone, a ratio of summed seconds; the
# brackets are a 95% bootstrap interval over the 128 prompts. `confidence(threshold=0.3)`, which
# stops when the draft gave its own token a probability below 0.3, is at 1.68 [1.55, 1.82], the best
# fixed draft of four tokens at 1.62 [1.48, 1.75]. `heuristic`, which drafts longer after a whole
# draft was accepted and shorter after a rejection, is at 1.70 [1.57, 1.85]. The `oracle` drafts
# exactly what will be accepted, which nobody can know: 2.37.
#
# Decisions are paid: `confidence` spends 2.9 s on them (*policy s*) and is still ahead of `fixed(4)`,
# because it drafts a quarter less. `svip`, which stops by entropy, drafts still less, but pays more
# for target passes than it saves. The heuristic looks at no token, so it has nothing to pay between
# tokens.
#
# **Caveat.** The intervals overlap. That does not mean that two policies cannot be told apart, as the
# next table shows.

# %% [markdown]
# ## Is one faster than the other?
#
# All policies decode the same prompts with the same random numbers. So compare them prompt by
# prompt: how hard a prompt is cancels out.

# %%
pairs = [
    ("confidence(threshold=0.3)", "fixed(4)"),
    ("svip(h=1.4)", "fixed(4)"),
    ("svip(h=1.4)", "fixed(5)"),
    ("fixed(4)", "fixed(5)"),
    ("confidence(threshold=0.3)", "heuristic(initial=7)"),
]
pl.DataFrame([vars(result.compare(a, b)) for a, b in pairs])

# %% [markdown]
# **What it shows.** `speedup` is how many times faster a is than b. `confidence` beats the best
# fixed length by 7% [3%, 11%]: clearly, although their own intervals overlap. SVIP at its best
# threshold is not distinguishable from it.
#
# **The paper's.** SVIP's Table 1 has SVIP 1.15–1.21 times as fast as a constant draft of 5. That
# comparison depends on the constant: on this pair 5 is too long.
#
# **Caveat.** These arguments (2, 1.4, 7, 0.4) were picked by looking at this trace.

# %% [markdown]
# ## With which arguments?
#
# A replay takes milliseconds, so try them all. A spec may hold ranges, `first:last:step`.

# %%
families = [
    "fixed(0:20)",
    "svip(h=0.1:3:0.1)",
    "heuristic(initial=1:19:3)",
    "confidence(threshold=0.05:0.95:0.05)",
]
simkit.sweep(trace, families)

# %% [markdown]
# **What it shows.** The six fastest of 77 settings are `confidence` with thresholds from 0.25 to
# 0.5, all between 1.49 and 1.55: the optimum is flat, which is good news for whoever has to pick a
# threshold without a trace.

# %% [markdown]
# ## How fast is the best setting on prompts that did not choose it?
#
# The best of many settings flatters itself on the prompts that it was chosen by. `tune` deals
# prompts into five folds, chooses on four and times on the fifth. The reference is a fixed length,
# chosen in the same way.

# %%
tuned = simkit.tune(trace, families[1:])
tuned

# %% [markdown]
# **What it shows.** The speedups on other prompts are hardly below those in sample: every fold
# chooses the same setting, for SVIP one of two neighbours. Against the tuned fixed length
# `confidence` is 1.09 [1.05, 1.13] times as fast, the heuristic 1.05 [1.01, 1.09], SVIP 1.01 [0.97,
# 1.04]. "Best of all" chooses the family, too, on the other prompts.
#
# **The paper's.** Papers choose on the prompts that they report. With few settings that does little
# harm, as here; with a hundred settings and twenty prompts it may do more.
#
# **Caveat.** The intervals resample prompts and keep the chosen settings: how the choice itself
# would vary is not in them.

# %% [markdown]
# ## Three comparisons or fourteen: which differences survive?
#
# At 95% one comparison in twenty finds something where there is nothing. With many policies,
# correct for their number: `compare` adjusts p-values (Holm), `simultaneous` gives intervals that
# hold for all policies at once.

# %%
seconds = {spec: held_s for spec, held_s in tuned.held_out.items() if spec != "best of all"}
found = compare.compare(seconds, against=tuned.reference)
at_once = compare.simultaneous(seconds, against=tuned.reference)
pl.DataFrame(
    [
        {
            "policy": one.name,
            "speed": one.speed.value,
            "alone_lo": one.speed.lo,
            "alone_hi": one.speed.hi,
            "p": one.p_value,
            "p_adjusted": one.adjusted,
            "at_once_lo": at_once[one.name].lo,
            "at_once_hi": at_once[one.name].hi,
        }
        for one in found
    ]
)

# %% [markdown]
# **What it shows.** `confidence` stands. The heuristic's 4.5% survive by a hair where three
# policies are compared: the lower end for all at once is 1.001. In the next figure there are
# fourteen, its interval is wider, and it holds 1.

# %% [markdown]
# ## Where does each policy stand?
#
# Every policy that a drafter can follow, tuned on other prompts: its speed against the share of its
# time that emits nothing: decisions, heads, and draft tokens that were not accepted.

# %%
figures.frontier(trace)

# %% [markdown]
# **What it shows.** A policy is on the line if none with less overhead is faster. Six policies are
# faster than the best fixed length outside their simultaneous intervals, by 4–9%. Waste is no vice
# by itself: the best rate wastes more than SVIP (13% of its time against 7%) and is faster.
#
# **The paper's.** No paper has this figure. PACER's Table 3 compares three dynamic policies on one
# benchmark: PACER 1.14, AdaEDL 1.06 and SpecDec++ 1.00 times as fast as plain speculation. Here
# they are at 1.03, 1.01 and 1.04, and the intervals of PACER and AdaEDL hold 1.
#
# **Caveat.** Decisions and heads were not timed with this trace, so they are free here.
# [06](06_heads_and_calibration.ipynb) puts a price on heads.

# %% [markdown]
# ## How much is left?
#
# `prophet` knows the future and the clock, and drafts what makes the total time shortest: no policy
# that drafts and verifies in turn can be faster. The gap from the best fixed length to it has
# parts.

# %%
figures.gap_decomposition(trace)

# %%
analysis.gap(trace, families[1:])

# %% [markdown]
# **What it shows.** With all policies to choose from (the figure) the best one saves 8% of the
# fixed length's time; the prophet would save 35%. On math 28% of 46% is reached, on German 3% of
# 33%, which may be nothing. With only the three families of this notebook (the table) it is the
# same 8% [5%, 12%]: 23% of the gap.
#
# **The paper's.** PACER's Fig. 2b has the optimal length 1.4 times as fast as the best fixed one;
# here it is 1.53. How much of that a drafter can know, the paper does not ask.
#
# **Caveat.** "Out of reach" means for these policies. A better signal moves the line.

# %% [markdown]
# ## Does the winner stay the winner on other machines?
#
# Only the seconds belong to a machine: the same steps can be given other times. Here c, the time of
# a target pass over that of a draft pass, runs along one axis, and prompts are grouped by how much
# the two models agree.

# %%
figures.best_policy_map(trace)

# %% [markdown]
# **What it shows.** Where the draft is dear and agrees little (lower left), the target alone is the
# fastest. With cheap drafts and prompts that agree much (upper right) `confidence` is; between them
# rules of entropy and of cumulated probability win, and at large c and middling overlap a fixed
# length does. But only 11 of 54 cells have a star, that is a winner that won 95% of the resamples:
# elsewhere the choice of the policy matters less than having a good length.

# %% [markdown]
# ## A rule of your own
#
# Every name in the table of [policies](../docs/policies.md) takes arguments, and several are older
# rules with their knobs free: `cumulative_confidence` multiplies the draft's probabilities along
# the draft, `llamacpp` looks at the top ten tokens only, `rate_optimal` has no threshold at all,
# but asks whether the next token is worth its time. Policies are also objects.

# %%
own = [
    simkit.policies.SVIP(h=1.0, scale=0.5, max_draft=12),
    "cumulative_confidence(threshold=0.25)",
    "llamacpp(p_min=0.4, keep=true)",
    "rate_optimal",
]
simkit.replay(trace, own)

# %% [markdown]
# **What it shows.** Speedups between 1.45 and 1.55. The arguments are near those that tuning
# chooses for this trace (SVIP with scale 0.5 and h = 1 stops where h = 1.41 with scale 1 does), so
# these figures flatter; `rate_optimal` is fitted on other prompts by itself.
#
# A rule that is not in the table is a Python function of the depth and of the columns that it wants
# to see, and can be replayed, swept and tuned like any other (in your own notebook; the ones that
# come with simkit define nothing):
#
#     def unsure(depth, row):
#         return row.draft_top1_prob - row.draft_top2_prob < 0.2
#
#     columns = ("draft_top1_prob", "draft_top2_prob")
#     simkit.replay(trace, ["fixed(2)", simkit.policies.from_function(unsure, columns)])

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder. It is made by
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit latency --target TARGET --draft DRAFT --out my-trace
#
# Then the numbers in the text above are no longer those of the tables. Look first at `folds`: where
# folds choose different settings, tune on more prompts. Policies with learned heads (PACER,
# SpecDec++, the acceptance head) are left out until `simkit score` has written their scores. Read
# on: [sweeps and tuning](../docs/sweeps.md), [bounds](../docs/bounds.md),
# [statistics](../docs/statistics.md), and [06](06_heads_and_calibration.ipynb) about heads.
