# %% [markdown]
# # 02 · The entropy bound
#
# Can a draft model tell by itself when its guesses will be rejected? SVIP (*Draft Model Knows When
# to Stop*) says so: where the draft is unsure, the target is likely to disagree. How unsure it is,
# is the *entropy* H(q) of its next-token distribution q: 0 nats if one token is certain, more if
# many are likely. SVIP drafts until the entropy is too high.
#
# This notebook follows the paper's argument step by step on a recorded trace, and then asks what
# the rule gains. p is the target's distribution, and the *overlap* β = Σ min(p, q) is the chance
# that a token sampled from q is accepted.

# %%
import polars as pl

import simkit
import traces
from analysis import claims, figures
from analysis.stats import entropy

_ = pl.Config.set_float_precision(3)

# %% [markdown]
# The first trace was decoded greedily, the second by sampling at temperature 1, from the same
# models and prompts: SmolLM2-135M-Instruct, a small chat model, on 300 prompts of Spec-Bench and
# HumanEval, with a draft model of 8 million parameters ([about them](../docs/smollm2.md)).

# %% tags=["parameters"]
TRACE = "smollm2"
SAMPLED = "smollm2-sampled"

# %% [markdown]
# ## Are unsure guesses rejected?
#
# Sort all positions by the draft's entropy, and look at how many of its tokens are accepted.

# %%
figures.entropy_acceptance(TRACE)

# %%
figures.entropy_acceptance(SAMPLED)

# %% [markdown]
# **What it shows.** Yes. Decoding greedily, nineteen in twenty tokens are accepted where the draft
# is surest, and one in twenty above 6 nats. Spearman's rank correlation of entropy and overlap is
# −0.66. Sampled it is −0.40, and the curve is flatter: from seven in ten down to a quarter.
#
# **The paper's.** Fig. 2, top, is sampled and shows a strong negative correlation. Ours has its sign,
# but is weaker than the 0.5 that we call strong. On the toy pair of the
# [other notebooks](README.md) it is −0.54, greedily −0.80.
#
# ## Do sure guesses lead far?
#
# A draft ends with its first rejected token. So look at how many tokens in a row are accepted from
# a position on, by the entropy there.

# %%
figures.entropy_length(TRACE)

# %% [markdown]
# **What it shows.** Runs get shorter with entropy (Spearman −0.51): two tokens where the draft is
# surest, a quarter of one at 5 nats. The long bars at low entropies come from loops: a small model
# that decodes greedily repeats itself, and where the draft foresees that, a run goes on to the end of
# the text. Outside of loops two tokens fall to one and a half at 0.7 nats, without such bars.
#
# **The paper's.** Fig. 2, bottom, has dozens of tokens in a row at low entropy. Ours agrees in
# sign, not in size: this draft is weak, 40% of its tokens are accepted.
#
# ## From an entropy to a bound
#
# Why should entropy tell anything about agreement? The overlap has a lower bound by the divergence
# of the two distributions, Pinsker's: β ≥ 1 − √(KL/2), where KL = H(q,p) − H(q), and H(q,p) is the
# *cross entropy*. But H(q,p) needs the target, which has not spoken yet. SVIP notes that H(q,p) is
# about a constant multiple of H(q), and if it is, the bound becomes 1 − √(c H(q)): the draft's
# entropy alone, and one number c. Is the multiple constant?

# %%
figures.entropy_ratio(TRACE)

# %% [markdown]
# **What it shows.** No. In 5% of positions the cross entropy is 1.0 to 1.3 times the entropy. The
# median is 2.32, and at one position in eight it is more than four times as high. (The bar at 2.0
# sticks out because the bundled statistics are rounded to 5 bits: quotients of round numbers are
# round.) A weak draft does not know how wrong it is: where it is unsure the target often says
# something that it holds for unlikely.
#
# **The paper's.** Fig. 3: concentrated between 1.0 and 1.3. Ours does not agree. On the toy pair,
# whose draft is closer to its target, 59% of positions lie there and the median is 1.24.
#
# ## How close is the bound?
#
# Now sort positions by their overlap, and draw the overlap, the bound, and SVIP's estimate of it.

# %%
figures.entropy_bound(TRACE)

# %%
figures.entropy_bound(SAMPLED)

# %% [markdown]
# **What it shows.** Pinsker's bound lies well below the overlap, and under 0, where it says
# nothing, for three quarters of the positions greedily and nearly half of them sampled. The estimate
# hardly moves: greedily it stays near 0.2 over the lower half, and rises a little where the overlap
# is high; sampled it is nearly flat. Half of the time it is above the overlap, so it is no bound.
#
# **The paper's.** Fig. 4 has the estimate near the bound throughout. Ours does not. Its appendix B finds
# Pinsker's bound 11% to 43% tighter than another one, that of Bretagnolle and Huber. Here it is far
# below it on average, since it falls without end where the other stops at 0. With negative bounds
# set to 0, Pinsker's is 12% tighter greedily and 17% sampled, as the paper has it.
#
# The paper leaves c open. It can be fitted to three things, which are not the same.

# %%
trace = traces.load(TRACE)
offsets = trace.position_offsets
columns = [trace.positions(name) for name in ("draft_entropy", "cross_entropy", "overlap")]
fits = {to: entropy.fit(*columns, offsets, to) for to in ("overlap", "bound", "ratio")}
below = {to: entropy.tightness(*columns, offsets, c.value).below for to, c in fits.items()}
pl.DataFrame(
    [
        {"c fitted to": to, "c": c.value, "c_lo": c.lo, "c_hi": c.hi, "share": below[to].value}
        for to, c in fits.items()
    ]
)

# %% [markdown]
# **What it shows.** Fitted to the overlap itself, c is 0.161, and the estimate is at or below the
# overlap in 54% of positions (*share*). Fitted to Pinsker's bound, or to the ratio of entropies,
# c is 0.748 or 0.838, and the share is 98%: nearly always true, and nearly always below 0. Say which
# one you mean.
#
# ## What does it gain?
#
# A decoder needs no c, only a threshold: `svip(h=0.8)` stops where √H(q) exceeds 0.8.

# %%
figures.draft_lengths(TRACE)

# %% [markdown]
# **What it shows.** SVIP drafts 1.1 tokens a step where the constant drafts 4.9, and 39% of
# them are accepted, against 13% and, for the Hugging Face heuristic, 26%. It is surest of code:
# 1.2 tokens on `humaneval`, of which 48% are accepted.
#
# **The paper's.** Figs. 5 to 7 show the same order, with higher shares: "close to or more than 80%"
# for Qwen, "more than 90%" for LLaMA. Those pairs agree more.
#
# A higher share is not yet speed. Tune the threshold, and judge it on prompts that it was not tuned
# on, against the best fixed length.

# %%
simkit.tune(trace, "svip(h=0.2:2.0:0.1, max_draft=16)", by="task")

# %% [markdown]
# **What it shows.** On five of fourteen tasks SVIP is faster than the task's best fixed length, with
# the time of its decisions paid: by 2.5% on `roleplay` to 4% on `qa`. On `extraction` it is 0.7% slower, on
# `summarization` 0.4%. On the others the intervals hold 1. With one threshold for all tasks it is 1.009 [1.004, 1.015] times as
# fast as one fixed length ([notebook 05](05_comparing_policies.ipynb)). The best fixed length is 1 or 2
# everywhere, so a rule can hardly stop earlier; what it gains, it gains by drafting on where the draft
# is sure.
#
# **The paper's.** Table 1 has SVIP 1.15 to 1.21 times as fast as a constant length of 5, on average
# over tasks.
#
# **Caveat.** A gain over *some* fixed length is easier than one over the best: over a constant 5, which
# is slower here than the target alone, SVIP gains far more than the paper prints (below). How much
# there is to gain also depends on the machine. On this CPU a target pass takes as long as eleven draft
# passes, but one over six tokens takes 1.7 times as long as one over one token; on a GPU the two are
# alike ([what carried over](../docs/carried-over.md)).
#
# ## The paper's claims, all of them

# %%
claims.check(TRACE, sampled=SAMPLED, claims=[one for one in claims.claims() if one.paper == "SVIP"])

# %% [markdown]
# **What it shows.** What SVIP says of drafts and of speed holds: low entropies lead further, greedily
# more than sampled, 4% more of its tokens are accepted than of constants that draft as much, and at
# the paper's settings it is faster than the constant 5, 1.58 [1.48, 1.72] times, and than the
# heuristic, 1.13. Beside the verdicts stands whether they would hold on coin flips; those two would,
# since any rule that drafts less gains where two tokens in five are accepted. What it says of bounds
# does not hold: the ratio of entropies is not constant, the estimate lies below acceptance no more
# often than not, and acceptance is not strongly correlated with entropy when sampled.
# [Claims](../docs/claims.md) has the table for all five papers.
#
# ## Now with your trace
#
# Set `TRACE` to your folder. If you recorded the pair both ways, with `--temperature 1` into
# another folder, set `SAMPLED` to that; else delete the cells that use it, and `sampled=` from the
# last one. The numbers in the text are those of the bundled traces. The tuning needs times: run
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# on your machine, or pass a `cost=` ([costs](../docs/costs.md)). It times SVIP's rule with the passes;
# `simkit latency` times passes alone, and decisions are then free.
#
# The statistics and what to know before quoting them are in [statistics](../docs/statistics.md).
# Next: [what the position in the draft tells](03_position_decay.ipynb).
