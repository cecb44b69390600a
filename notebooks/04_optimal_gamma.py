# %% [markdown]
# # 04 · The optimal draft length
#
# How many tokens should be drafted? There are three answers, each better informed than the one
# before. Leviathan et al., who introduced speculative decoding, give a formula for tokens that are
# accepted independently. A trace says which fixed length would have been fastest, for each task.
# And for each single step there is a length γ* that wastes nothing and misses nothing: PACER and
# PEARL both start from how much it varies.

# %%
import polars as pl

from analysis import Study, claims, figures
from analysis.replays import Replays
from analysis.stats import optimal

_ = pl.Config.set_float_precision(3)

# %% tags=["parameters"]
TRACE = "smollm2"

# %% [markdown]
# ## What does the formula say?
#
# It needs two numbers: α, the chance that a draft token is accepted, and the *cost ratio* c, the
# time of a target pass over that of a draft pass. Drafting γ tokens then yields
# (1 − α^(γ+1)) / (1 − α) tokens a step, at the price of γ / c + 1 target passes. The table has the
# γ of the highest quotient, by α and c.

# %%
alphas = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
best = {f"c = {c}": optimal.optimal_length(alphas, c) for c in (2, 4, 6, 12, 20, 40)}
pl.DataFrame({"alpha": alphas} | best)

# %% [markdown]
# **What it shows.** A better draft and a cheaper one both allow longer drafts. At α = 0.5 and c = 2
# it is best not to draft at all. The column c = 12 is about where the bundled pair stands on the
# machine that timed it, at 11.4.
#
# ## Which fixed length is fastest here?
#
# Every length from 1 to 12, replayed on the trace, with the formula's curve for the trace's own α
# and c beside them. A `Study` is a trace and what was replayed of it: what one picture has replayed,
# the next need not.

# %%
study = Study(TRACE)
drawn = figures.optimal_gamma(study)
drawn

# %% [markdown]
# **What it shows.** On `math` the optimum is γ = 10, at 2.58 times the speed of the target alone,
# though 9 to 12 are hardly slower; on the other tasks it is 3 to 5, at 1.50 to 1.65. Beyond the
# optimum speed falls slowly, but it falls: the length that is best for `math` leaves `prose` with 1.20
# and an interval that holds 1.
#
# **The paper's.** PACER's Table 16 and PEARL's Table 14 have the same shape with optima of 4 to 10:
# most of their pairs accept longer runs.
#
# How good is the formula, task by task? Take α to be the share of accepted tokens, and c from the
# times of the passes.

# %%
trace = study.trace
c = Replays(study).cost_ratio()
tokens = pl.from_arrow(trace.sequences).select(pl.col("task").repeat_by("n_output").explode())
tokens = tokens.with_columns(accepted=trace.positions("accepted"))
shares = tokens.group_by("task", maintain_order=True).agg(alpha=pl.col("accepted").mean())
alpha = shares["alpha"].to_numpy()
formula = optimal.optimal_length(alpha, c)
shares.with_columns(formula_gamma=formula, formula_speedup=optimal.speedup(alpha, formula, c)).join(
    drawn.frame.filter("best").select("gamma", "speedup", "chosen", task="series"), on="task"
)

# %% [markdown]
# **What it shows.** The formula promises more than there is, 1.95 to 3.40 times the speed of the
# target alone where 1.50 to 2.58 can be had. Its length is one token too long on `code` and `prose`,
# and one too short on `math` and `german`. It takes every token to be accepted with the same chance.
# But a step begins behind a rejection, where the text is hard, and long runs are more frequent than
# it supposes (notebook 03). And it counts two kinds of passes, while a decoder also pays for prompts,
# for longer verifications and for the loop around them. *chosen* says in what share of resamples of
# the prompts the length is the fastest: less than half on `code` and `german`, where neighbours are
# about as good.
#
# **Caveat.** A length chosen on the same prompts that it is judged by looks a little faster than it
# is; `simkit.tune` holds prompts out.
#
# ## How much does the best length change from step to step?
#
# Look behind the averages: how many tokens could each single step have used?

# %%
figures.step_lengths(study)

# %%
figures.optimal_lengths(study)

# %% [markdown]
# **What it shows.** 39% of steps can use no draft token at all, the median step can use one, and one
# goes on for 250. On average a step can use 2.60 tokens; on `math` 6.93, most often 0 or 7. No fixed
# length fits them all.
#
# **The paper's.** PACER's Fig. 2a and PEARL's Fig. 2b show the same: a different γ* in every
# iteration. Ours agrees.
#
# **Caveat.** The longest runs here are loops, in which a small model repeats itself and the draft
# foresees it.
#
# ## What would γ* gain?
#
# The `oracle` policy drafts γ* tokens in each step. No decoder can know γ*, but it is the best that
# a stopping rule could hope for.

# %%
figures.optimal_gain(study)

# %% [markdown]
# **What it shows.** γ* is 1.48 [1.44, 1.52] times as fast as the best fixed length, one for all
# tasks, with 0.78 of its target passes and 0.50 of its draft passes. On `math` it needs 0.86 of the
# draft passes and half of the target passes: there γ = 4 is often too short.
#
# **The paper's.** PACER's Fig. 2b prints 1.4 times for HumanEval. Its counts are 0.38 of the target
# passes and, with the baseline of Table 6, 0.82 of the draft passes, which gives 1.46 under the
# latencies of Table 14. Ours agrees on the time, from other counts: there most target passes are saved
# and few draft passes, here it is a fifth of the target passes and half of the draft passes.
#
# ## How much of it can be reached?
#
# A rule sees the draft's probabilities, not the future. Of the time of the best fixed length, one
# for all tasks, how much does the best of all policies save, and how much is left that only the
# future would tell?

# %%
figures.gap_decomposition(study)

# %% [markdown]
# **What it shows.** Knowing the future would save 33% of the time of the best fixed length. The best
# policy saves 6% [4%, 8%], between a ninth and a quarter of that. On `math` it saves 13% [11%, 15%] of
# 41%. On the other tasks it saves 5%, and it may be hardly anything: their intervals begin between
# 0.4% and 1.1%. All this is against one length for all tasks. With settings of its own, as
# `analysis.gap` tunes them on a task's prompts alone, `math` has a gap of 29%, since its own length is
# nearly always 10. `prose` then has 1.8% [−2.9%, 7.5%] to save: nothing that can be told from none.
#
# **Caveat.** Which policy is best was chosen on other prompts, and so was the fixed length, which
# loses 1.2% [0.5%, 2.2%] by that ([notebook 05](05_comparing_policies.ipynb)). The best is the
# heuristic in most folds: it decides by the last draft alone. In the others it is a threshold on the
# draft's confidence. Decisions and heads take 0.7% of the time ([bounds](../docs/bounds.md)).
#
# ## What the papers claim

# %%
wanted = (
    "lengths_vary",
    "fixed_is_mostly_wrong",
    "optimal_is_faster",
    "optimal_saves_both",
    "speculation_pays",
)
claims.check(study, claims=[one for one in claims.claims() if one.name in wanted])

# %% [markdown]
# **What it shows.** All five hold on this pair. Of all steps 95% want another length than 4. By itself
# that says little: with independent tokens, accepted as often, 92% would. The difference is 2.5%
# [0.6%, 4.3%].
#
# ## Now with your trace
#
# Set `TRACE` to your folder; the numbers in the text are those of `reference`. Everything here but
# the first table and the two pictures of γ* needs times: run
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# on your machine (`simkit latency` for passes alone), or name a cost in each call, as in
# `figures.optimal_gamma(study, cost="pacer:deepseek-1.3b-33b")` ([costs](../docs/costs.md)). Then look
# at two numbers: how far the best fixed lengths of your tasks lie apart, and how much γ* gains. If
# both are small, a fixed length will do.
#
# Next: [comparing policies](05_comparing_policies.ipynb).
