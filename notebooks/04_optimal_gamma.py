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
_ = pl.Config.set_tbl_rows(20)

# %% [markdown]
# The trace is one of SmolLM2-135M-Instruct, a small chat model, with a draft of 8 million parameters,
# greedy, on 300 prompts of fourteen tasks, timed on one CPU thread ([about it](../docs/smollm2.md)).

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
# it is best not to draft at all. The column c = 12 is about where this pair stands on the machine
# that timed it, at 11.4.
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
# **What it shows.** On `math`, `qa`, `math_reasoning`, `roleplay` and `humaneval` the optimum is γ = 2, on the other
# tasks 1. The best speeds lie between 1.03 times that of the target alone, on summaries, and 1.29, on
# `humaneval`. Beyond 2 speed falls at once: with five tokens a step every task is slower than the target
# alone, though on `humaneval` the interval holds 1. Six of fourteen tasks are drawn; the frame has all.
#
# **The paper's.** PACER's Table 16 and PEARL's Table 14 have the same shape with optima of 4 to 10. Their
# pairs accept longer runs. And on their GPUs verifying more tokens takes hardly longer, while on this
# CPU a pass over three tokens takes 1.1 times as long as one over one, over four 1.6 times.
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
# **What it shows.** The formula promises more than there is, 1.16 to 1.52 times the speed of the
# target alone where 1.03 to 1.29 can be had, and on most tasks one token more than is best. It takes
# every token to be accepted with the same chance, which is not far off here (notebook 03). But it counts
# two kinds of passes, while a decoder also pays for prompts, for the loop around the passes, and, most
# of all, for longer verifications. *chosen* says in what share of resamples of the prompts the length
# is the fastest: about half on `qa`, `math_reasoning` and `roleplay`, where 1 and 2 are about as good.
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
# **What it shows.** 63% of steps can use no draft token at all, another 22% can use one, and one goes
# on for 467. On average a step can use 0.66 tokens: 1.06 on `humaneval`, 0.35 on summaries. No fixed
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
# **What it shows.** γ* is 1.23 [1.20, 1.26] times as fast as the best fixed length, one for all
# tasks, with 0.83 of its target passes and 0.55 of its draft passes. On `humaneval` it saves more target
# passes, a quarter, and fewer draft passes.
#
# **The paper's.** PACER's Fig. 2b prints 1.4 times for HumanEval. Its counts are 0.38 of the target
# passes and, with the baseline of Table 6, 0.82 of the draft passes, which gives 1.46 under the
# latencies of Table 14. Ours agrees in sign. Where three tokens in five are rejected the best fixed
# length is 1, and most of what knowing the future saves is that one token.
#
# ## How much of it can be reached?
#
# A rule sees the draft's probabilities, not the future. Of the time of the best fixed length, one
# for all tasks, how much does the best of all policies save, and how much is left that only the
# future would tell?

# %%
figures.gap_decomposition(study)

# %% [markdown]
# **What it shows.** Knowing the future would save 19% of the time of the best fixed length. The best
# policy saves 1.7% [1.0%, 2.3%], an eleventh of that. On `humaneval` it saves 5% [3%, 8%] of 24%, on
# `roleplay` and `coding` 4%, on `math_reasoning` and `math` 3%. On nine of fourteen tasks the interval holds 0:
# nothing that can be told from none.
#
# **Caveat.** Which policy is best was chosen on other prompts, and so was the fixed length, which is 1
# in every fold. The best is `rate_optimal`, which asks whether the next token is worth its time. Decisions
# take 0.5% of the time ([bounds](../docs/bounds.md)). On the toy pair of the other notebooks, which
# accepts 72% of its tokens, the best policy saves 4% of 32%.
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
# **What it shows.** All five hold on this pair. Of all steps 78% want another length than 1. By itself
# that says little: with independent tokens, accepted as often, 76% would. The difference is 1.9%
# [0.6%, 2.9%]. That speculation pays, and that γ* is faster, coin flips would show as well.
#
# ## Now with your trace
#
# Set `TRACE` to your folder; the numbers in the text are those of `smollm2`. Everything here but
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
