# %% [markdown]
# # 02 · The entropy bound
#
# Can a draft model tell by itself when its guesses will be rejected? SVIP (*Draft Model Knows When
# to Stop*) says yes: where the draft is unsure, the target is likely to disagree. Uncertainty is
# measured by the *entropy* H(q) of the draft's next-token distribution q. It is 0 nats if one token is
# certain, and grows as more tokens become likely. SVIP stops drafting when the entropy is too high.
#
# This notebook follows the paper's argument step by step on a recorded trace, and then asks what
# the rule gains. p is the target's distribution. The *overlap* β = Σ min(p, q) is the chance that a
# token sampled from q is accepted.

# %%
import polars as pl

import simkit
import traces
from analysis import claims, figures
from analysis.stats import entropy

_ = pl.Config.set_float_precision(3)

# %% [markdown]
# The first figures use a draft of which 80% of the tokens are accepted greedily and 68% at
# temperature 1, nearly as often as the paper's: [`ladder`](../docs/ladder.md) has
# SmolLM2-135M-Instruct, a small chat model, as the target, and the same model rounded to 3 bits a
# weight as the draft (`q3-g32`). Such a draft is the target with noise, not an independent small
# model, so its entropy is closer to the target's than usual.
#
# Most other cells use the two traces below, greedy and at temperature 1. They have the same target
# on 300 prompts of Spec-Bench and HumanEval, but an independent draft model of 8 million
# parameters, of which only 40% of the tokens are accepted ([details](../docs/smollm2.md)).

# %% tags=["parameters"]
TRACE = "smollm2"
SAMPLED = "smollm2-sampled"

# %% [markdown]
# ## Are unsure guesses rejected?
#
# Sort all positions by the draft's entropy. How many of its tokens are accepted at each level? The
# first figure is greedy, the second sampled.

# %%
ladder = traces.load("ladder/drafters/q3-g32")
ladder_sampled = traces.load("ladder-sampled/drafters/q3-g32")
figures.entropy_acceptance(ladder)

# %%
figures.entropy_acceptance(ladder_sampled)

# %% [markdown]
# **What it shows.** Yes. Under greedy decoding, practically all tokens are accepted where the draft
# is surest, and 36% above 4 nats. Spearman's rank correlation of entropy and overlap is −0.85
# [−0.88, −0.82]. Under sampling it is −0.58 [−0.65, −0.51], and the curve is flatter: acceptance
# falls from 98% to about 60% at 3 nats, and no further.
#
# **The paper's.** Fig. 2, top, is sampled and shows a strong negative correlation. We call a
# correlation strong if it is beyond 0.5, and ours is. With the weak draft of the two traces named
# above it is weaker: −0.40 sampled, which is not strong, and −0.66 greedy. On the toy pair of the
# [other notebooks](README.md) it is −0.54 sampled and −0.80 greedy.
#
# ## Do sure guesses lead far?
#
# A draft ends with its first rejected token. So count how many tokens in a row are accepted from
# each position on, by the entropy there. From here on the draft is the independent model, unless a
# cell names `ladder`.

# %%
figures.entropy_length(TRACE)

# %% [markdown]
# **What it shows.** Runs get shorter with entropy (Spearman −0.51): two tokens where the draft is
# surest, a quarter of one at 5 nats. The long bars at low entropies come from loops. A small model
# that decodes greedily repeats itself, and where the draft foresees the loop, a run lasts to the end of
# the text. Outside of loops the mean falls from two tokens to one and a half at 0.7 nats, without such
# bars.
#
# **The paper's.** Fig. 2, bottom, has dozens of tokens in a row at low entropy. Ours agrees in
# sign, not in size: this draft is weak, and only 40% of its tokens are accepted.
#
# ## From an entropy to a bound
#
# Why should entropy predict agreement? Pinsker's inequality gives a lower bound of the overlap: β ≥
# 1 − √(KL/2), where KL = H(q,p) − H(q) is the divergence of the two distributions and H(q,p) is
# their *cross entropy*. H(q,p) needs the target's distribution, which a drafter does not have yet.
# SVIP observes that H(q,p) is about a constant multiple of H(q). Then the bound becomes 1 − √(c
# H(q)): it needs only the draft's entropy and one number c, which is not the cost ratio of other
# notebooks. Is the multiple constant? The first figure has the draft of `ladder`, the second the
# independent one.

# %%
figures.entropy_ratio(ladder)

# %%
figures.entropy_ratio(TRACE)

# %% [markdown]
# **What it shows.** That depends on the draft. The draft of `ladder` has a ratio between 1.0 and
# 1.3 in 68% [63%, 74%] of positions, with a median of 1.20. The independent draft has such a ratio
# in only 5%. Its median ratio is 2.32, and in one position of eight the ratio is above four. (The
# second figure's bar at 2.0 stands out because the bundled statistics are rounded to 5 bits, so
# their quotients are often round numbers.) A weak draft does not know how wrong it is: where it is
# unsure, the target often chooses a token that the draft takes to be unlikely.
#
# **The paper's.** In Fig. 3 the ratio is concentrated between 1.0 and 1.3. `ladder` agrees, but
# this is weak evidence: a draft that is the target with noise has nearly the target's entropy. The
# independent draft does not agree. The toy pair's draft is closer to its target: there, 59% of
# positions are in this range, and the median is 1.24.
#
# ## How close is the bound?
#
# Now sort positions by their overlap. The figures show the overlap, Pinsker's bound, and SVIP's
# estimate of the bound, greedy and sampled.

# %%
figures.entropy_bound(TRACE)

# %%
figures.entropy_bound(SAMPLED)

# %% [markdown]
# **What it shows.** Pinsker's bound lies well below the overlap. For three quarters of the positions
# under greedy decoding, and nearly half under sampling, it is below 0 and says nothing. The estimate
# hardly moves: greedily it stays near 0.2 over the lower half and rises a little where the overlap is
# high; sampled it is nearly flat. It is above the overlap about half of the time, so it is no bound.
#
# **The paper's.** Fig. 4 has the estimate near the bound throughout. Ours does not. Appendix B finds
# Pinsker's bound 11% to 43% tighter than that of Bretagnolle and Huber. Here it is far looser on average,
# because it falls without limit and the other stops at 0. If negative bounds are set to 0, Pinsker's is
# 12% tighter greedily and 17% sampled, as in the paper.
#
# The paper does not fix c. It can be fitted to three quantities, with different results.

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
# overlap in 54% of positions (*share*). Fitted to Pinsker's bound c is 0.748, and to the ratio of
# entropies 0.838. The share is then 98%: the estimate is nearly always a true lower bound, and
# nearly always below 0. So always state what c was fitted to.
#
# ## What does it gain?
#
# A decoder needs no c, only a threshold: `svip(h=0.8)` stops where √H(q) exceeds 0.8.

# %%
figures.draft_lengths(TRACE)

# %% [markdown]
# **What it shows.** SVIP drafts 1.1 tokens a step, and 39% of them are accepted. The constant drafts
# 4.9, with 13% accepted; of the Hugging Face heuristic's tokens 26% are accepted. SVIP's share is
# highest on code: on `humaneval` it drafts 1.2 tokens, and 48% are accepted.
#
# **The paper's.** Figs. 5 to 7 show the same order, with higher shares: "close to or more than 80%"
# for Qwen, "more than 90%" for LLaMA. Those pairs agree more.
#
# A higher share need not mean more speed. Tune the threshold, and compare it with the best fixed
# length, both on prompts that they were not tuned on.

# %%
simkit.tune(trace, "svip(h=0.2:2.0:0.1, max_draft=16)", by="task")

# %% [markdown]
# **What it shows.** If each task has its own fixed length, SVIP hardly gains. With the time of its
# decisions included, it is faster on one task of fourteen, `reasoning`, by 3.1% [0.5%, 7.6%]. It is
# slower on `extraction`, by 0.7%, and on `summarization`, by 0.5%. On the other eleven the interval
# contains 1. The best fixed length is 1 or 2 on every task: a rule can hardly stop earlier.
#
# With one setting for all tasks, SVIP is 1.009 [1.004, 1.015] times as fast as the best fixed length, 1
# ([notebook 05](05_comparing_policies.ipynb)). It gains by drafting on where the draft is sure.
#
# **The paper's.** Table 1 has SVIP 1.15 to 1.21 times as fast as a constant length of 5, on average
# over tasks.
#
# **Caveat.** It is easier to beat *some* fixed length than the best one. A constant 5 is slower here
# than the target alone, and SVIP gains far more over it than in the paper (below). The gain also
# depends on the machine. On this CPU a target pass takes as long as sixteen draft passes, but a pass
# over six tokens takes 1.7 times as long as one over one token. On a GPU those two take about the same
# time ([what carried over](../docs/carried-over.md)).
#
# ## The paper's claims, all of them

# %%
claims.check(TRACE, sampled=SAMPLED, claims=[one for one in claims.claims() if one.paper == "SVIP"])

# %% [markdown]
# **What it shows.** The claims about drafts and speed hold. Drafts that start at low entropies are
# accepted for longer, greedily more than sampled. The share of its tokens that is accepted is 4% higher
# than that of constant drafts as long. At the paper's settings SVIP is 1.53 [1.50, 1.57] times as fast as
# the constant 5, and 1.12 [1.11, 1.13] times as fast as the heuristic. On coin flips (last column) these
# two would hold as well: where two tokens in five are accepted, any rule that drafts less gains.
#
# The claims about bounds do not hold. The ratio of entropies is not constant, the estimate is below
# acceptance in only about half of the positions, and acceptance does not correlate strongly with
# entropy under sampling. At 80% acceptance these verdicts turn, and so do those about speed: [what
# carried over](../docs/carried-over.md). [Claims](../docs/claims.md) has the table for all five
# papers.
#
# ## Now with your trace
#
# Set `TRACE` to your folder, and load it instead of `ladder`, too. If you recorded the pair both
# ways, with `--temperature 1` into another folder, set `SAMPLED` to that one. Otherwise delete the
# cells that use it, and `sampled=` in the last one. The numbers in the text are those of the
# bundled traces. The tuning needs times: run
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# on your machine, or pass a `cost=` ([costs](../docs/costs.md)). The command times passes and SVIP's
# decisions; `simkit latency` times passes only, and decisions are then free.
#
# [Statistics](../docs/statistics.md) explains the estimators and their limits.
# Next: [acceptance by position in the draft](03_position_decay.ipynb).
