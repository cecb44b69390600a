# %% [markdown]
# # 04 · The optimal draft length
#
# How many tokens should be drafted? There are three answers; each uses more information than the
# one before. Leviathan et al., who introduced speculative decoding, give a formula for tokens that
# are accepted independently. A trace shows which fixed length would have been fastest, for each
# task. And each single step has an ideal length γ*: exactly the draft tokens that will be accepted.
# PACER and PEARL both start from how much γ* varies.

# %%
import polars as pl

import traces
from analysis import Study, claims, figures
from analysis.replays import Replays
from analysis.stats import optimal

_ = pl.Config.set_float_precision(3)
_ = pl.Config.set_tbl_rows(20)

# %% [markdown]
# The first figure uses a draft of which 80% of the tokens are accepted, as in the papers:
# [`ladder`](../docs/ladder.md) has SmolLM2-135M-Instruct, a small chat model, as the target, and
# the same model rounded to 3 bits a weight as the draft (`q3-g32`), greedy, on 56 prompts of
# fourteen tasks. Such a draft is as slow as its target, so the figure borrows a GPU's times: those
# of Qwen2.5-32B with Qwen2.5-0.5B on an H200.
#
# All other cells use the trace below: the same target with an independent draft model of 8 million
# parameters, of which 40% of the tokens are accepted, greedy, on 300 prompts, timed on one CPU
# thread ([details](../docs/smollm2.md)).

# %% tags=["parameters"]
TRACE = "smollm2"

# %% [markdown]
# ## What does the formula say?
#
# It needs two numbers: α, the chance that a draft token is accepted, and the *cost ratio* c, the
# time of a target pass over that of a draft pass. Drafting γ tokens then yields
# (1 − α^(γ+1)) / (1 − α) tokens a step, and a step takes as long as γ / c + 1 target passes. The table
# has the γ with the highest quotient, by α and c.

# %%
alphas = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
best = {f"c = {c}": optimal.optimal_length(alphas, c) for c in (2, 4, 6, 12, 20, 40)}
pl.DataFrame({"alpha": alphas} | best)

# %% [markdown]
# **What it shows.** A better draft and a cheaper one both allow longer drafts. At α = 0.5 and c = 2
# it is best not to draft at all. On an H200 Qwen2.5-32B and 0.5B have c = 8.4. The pair that the
# other cells use has c = 15.8 on its CPU, between the columns 12 and 20.
#
# ## Which fixed length is fastest here?
#
# The figure has every length from 1 to 12, replayed on `ladder`, and the formula's curve for its α
# and c.

# %%
ladder = traces.load("ladder/drafters/q3-g32")
figures.optimal_gamma(ladder, cost="atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)")

# %% [markdown]
# **What it shows.** Over all tasks the best length is 5, which is 2.08 [1.95, 2.20] times as fast
# as the target alone. The curve is flat near it: lengths 4 and 6 have 2.07 and 2.05. Each task has
# its own best length, from 4 on six tasks to 8 on `reasoning` and `extraction`, but four prompts a
# task leave wide intervals. The formula also chooses 5 and promises more, 2.30. The figure draws
# six of the fourteen tasks; its frame has all.
#
# **The paper's.** PACER's Table 16 and PEARL's Table 14 have the same shape, with optima of 4 to
# 10. Ours agrees.
#
# **Caveat.** Acceptance and times are of different pairs.
#
# How does that change with a weak draft on a CPU? From here on all cells use the trace named above.
# A `Study` keeps replays of a trace, so later figures need not repeat them.

# %%
study = Study(TRACE)
drawn = figures.optimal_gamma(study)

# %% [markdown]
# With this weak draft model, drafts should be much shorter. The best length is 2 on eight tasks and
# 1 on the other six. The best speeds are from 1.12 times that of the target alone, on
# `summarization`, to 1.37, on `humaneval`. Beyond 2 speed falls at once: with three tokens only
# `humaneval` is above 1, and with five no task is, though the intervals on `humaneval`, `roleplay`
# and `math_reasoning` contain 1.
#
# **The paper's.** Their optima of 4 to 10 are longer for two reasons. Their pairs accept longer
# runs. And on their GPUs verifying more tokens takes hardly longer, while on this CPU a pass over
# three tokens takes 1.1 times as long as a pass over one, and a pass over four 1.6 times.
#
# How good is the formula, task by task? Let α be the share of accepted tokens, and take c from the
# times of the passes. The table has the best replayed length as `gamma`, and its speedup.

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
# **What it shows.** The formula promises too much: 1.19 to 1.61 times the speed of the target alone
# instead of 1.12 to 1.37. On eight of fourteen tasks it chooses one token too many. It assumes that
# every token is accepted with the same chance, which is nearly so here (notebook 03). But it counts
# two kinds of passes only. A decoder also pays for prompts, for the loop around the passes, and,
# most of all, for longer verifications. *chosen* is the share of resamples of the prompts in which
# the length is the fastest. It is lowest on `reasoning`, 0.62, where 1 and 2 are about equally
# good.
#
# **Caveat.** A length chosen on the same prompts that it is judged by looks a little faster than it
# is; `simkit.tune` chooses it on other prompts.
#
# ## How much does the best length change from step to step?
#
# How many tokens could each single step have used?

# %%
figures.step_lengths(study)

# %%
figures.optimal_lengths(study)

# %% [markdown]
# **What it shows.** In 63% of steps no draft token would be accepted, in another 22% one, and in
# one step 467. The average is 0.66 tokens: 1.06 on `humaneval`, 0.35 on `summarization`. No fixed
# length is right for all steps.
#
# **The paper's.** PACER's Fig. 2a and PEARL's Fig. 2b show the same: a different γ* in every
# iteration. Ours agrees.
#
# **Caveat.** The longest runs here are loops, in which a small model repeats itself and the draft
# foresees it.
#
# ## What would γ* gain?
#
# The `oracle` policy drafts γ* tokens in each step. No decoder can know γ*, but a stopping rule could
# hardly do better.

# %%
figures.optimal_gain(study)

# %% [markdown]
# **What it shows.** γ* is 1.18 [1.16, 1.19] times as fast as the best fixed length, one for all
# tasks, with 0.83 of its target passes and 0.55 of its draft passes. Four fifths of the time saved is
# verification. On `humaneval` γ* takes 0.72 of the target passes and 0.75 of the draft passes.
#
# **The paper's.** PACER's Fig. 2b prints 1.4 times for HumanEval. Its counts are 0.38 of the target
# passes and, with the baseline of Table 6, 0.82 of the draft passes. Under the latencies of Table 14 they
# give 1.46. Ours agrees in sign. Here three tokens in five are rejected and the best fixed length is 1, so
# there are fewer passes to save.
#
# ## How much of it can be reached?
#
# A rule sees the draft's probabilities, not the future. The best fixed length, one for all tasks,
# takes some time. What share of it does the best policy save, and what share could only be saved by
# knowing the future?

# %%
figures.gap_decomposition(study)

# %% [markdown]
# **What it shows.** Knowing the future would save 15% of the time of the best fixed length. The
# best policy saves 1.9% [1.2%, 2.6%], an eighth of these 15%. It saves 6% [3%, 9%] of 22% on
# `humaneval`, 5% on `roleplay`, 4% on `coding` and `math_reasoning`, and 3% on `math`. On these
# five tasks a fixed length of 2 is better than 1, which is part of the saving. On the other nine
# the interval contains 0.
#
# **Caveat.** The best policy was chosen on other prompts, and so was the fixed length, which is 1
# in every fold. The best is `rate_optimal`, which drafts on if the next token is worth its time.
# Its decisions take 0.7% of the time ([bounds](../docs/policies.md#bounds)). On the toy pair of
# later notebooks, which accepts 72% of its tokens, the best policy saves 4% of 32%.
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
# **What it shows.** All five claims hold on this pair. Of all steps 78% need another length than 1.
# By itself that shows little: with tokens that are accepted independently at the same rate, 76% of
# steps would. The difference is 1.9 [0.6, 2.9] percentage points. The claims about speed and about
# passes saved would also hold on coin flips.
#
# ## Now with your trace
#
# Set `TRACE` to your folder, and use it instead of `ladder` in the first figure. The numbers in the
# text are those of the bundled traces. Everything here but the first table and the two figures of
# γ* needs times: run
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# on your machine (`simkit latency` for passes alone), or name a cost in each call, as in
# `figures.optimal_gamma(study, cost="pacer:deepseek-1.3b-33b")` ([costs](../docs/costs.md)). Then look
# at two numbers: how far the best fixed lengths of your tasks lie apart, and how much γ* gains. If
# both are small, a fixed length will do.
#
# Next: [comparing policies](05_comparing_policies.ipynb).
