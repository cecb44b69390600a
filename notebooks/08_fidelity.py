# %% [markdown]
# # 08 · Fidelity: predictions against the clock
#
# A replay knows every step of a policy exactly, but it has to *predict* seconds. How far off are
# they? `simkit fidelity` decodes some prompts for real, under several policies, times every pass,
# and then predicts the same from other prompts' passes. No paper does this: papers either measure
# times or count passes. simkit comes with such a run, made on one CPU core. This notebook reads its
# results and does not repeat it.

# %%
import polars as pl

import simkit
import traces
from analysis import fidelity, figures
from analysis.stats import clusters

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## How far off is the predicted speedup?
#
# Every policy decoded the same held-out prompts several times. The times were fitted to other
# prompts under other draft lengths, so no prediction here was fitted to what it predicts.

# %%
run = fidelity.load()
run.policies.select("policy", "predicted", "measured", "error", "error_lo", "error_hi", "sequences")

# %%
run.policies.select(
    median_error=pl.col("error").abs().median(),
    worst_error=pl.col("error").abs().max(),
    rank_correlation=pl.corr("predicted", "measured", method="spearman"),
    sequences=pl.col("sequences").sum(),
    sequences_with_other_steps=pl.col("differing").sum(),
)

# %%
figures.fidelity_speedups(run.policies)

# %% [markdown]
# **What it shows.** The median error of nine predicted speedups is 0.9%, the worst 3.0%. In all 216
# sequences live decoding took exactly the replay's steps. The order of the policies is nearly the
# measured one (rank correlation 0.95): PACER, third on the clock, is predicted first.
#
# **The paper's.** Some papers allow a prediction: PACER's Fig. 2b counts passes, and its Table 14
# has their times. Multiplied, they make the optimal length 1.46 times as fast as the best fixed
# one. PACER measured 1.4, 4% less.
#
# **Caveat.** Twenty-four prompts leave the speedups' intervals wide. An error compares two numbers
# of the same prompts, so its interval is much narrower than theirs. Seven of the nine errors'
# intervals contain 0; two do not: `fixed(1)` is predicted 1–4% too slow, PACER 1–5% too fast.

# %% [markdown]
# ## Is that the prediction that a replay makes?
#
# The run's times are an ordinary cost, so a replay can use them. The table has the held-out prompts
# only. (The run used an earlier PACER head, without rotary positions. The bundled head has them, so
# this cell names the scores of the earlier head.)

# %%
trace = traces.load(TRACE)
earlier_head = {"pacer(block=4)": "pacer(block=4, head=pacer-no-rope)"}
specs = run.policies["policy"].replace(earlier_head).to_list()
replayed = simkit.replay(trace, specs, run.cost, by="sequence").frame
replayed = replayed.with_columns(pl.col("policy").replace(specs, run.policies["policy"].to_list()))
live = run.measured.filter(pl.col("run").is_between(1, run.policies.height))
both = replayed.join(live.rename({"steps": "steps_live"}), on=["policy", "sequence"])
per_pass = {
    "draft_pass_ms": 1e3 * pl.col("draft_s").sum() / pl.col("drafted").sum(),
    "verification_ms": 1e3 * pl.col("verify_s").sum() / pl.col("steps").sum(),
}
both.group_by("policy", maintain_order=True).agg(
    predicted=pl.col("baseline_s").sum() / pl.col("total_s").sum(),
    steps=pl.col("steps").sum(),
    steps_live=pl.col("steps_live").sum(),
    **per_pass,
)

# %% [markdown]
# **What it shows.** The predictions are the same to the last digit, and so are the numbers of
# steps. Only the seconds are uncertain, never the steps.

# %% [markdown]
# ## How far off is a single prompt?

# %%
figures.fidelity_prompts(both)

# %%
both.select(
    below=(pl.col("total_s") / pl.col("seconds") - 1).quantile(0.05),
    middle=(pl.col("total_s") / pl.col("seconds") - 1).median(),
    above=(pl.col("total_s") / pl.col("seconds") - 1).quantile(0.95),
)

# %% [markdown]
# **What it shows.** The time of one prompt is predicted less well than the total: nine in ten
# predictions lie between 2% below the measured time and 6% above it, and the median is 1.3% above.
# In a speedup, a ratio of two such times, part of that cancels. So trust a replay's totals and
# differences more than its seconds for one text.

# %% [markdown]
# ## How good could a prediction be?
#
# The run has a control: the first policy was run twice. No prediction can be expected to come
# closer than two measurements of the same policy come to each other.

# %%
once = run.measured.filter(run=1)
again = run.measured.filter(run=run.policies.height + 1)
ratio = clusters.ratio(again["seconds"].to_numpy(), once["seconds"].to_numpy())
pl.DataFrame(
    {"policy": once["policy"][0], "again ÷ once": ratio.value, "lo": ratio.lo, "hi": ratio.hi}
)

# %% [markdown]
# **What it shows.** The same policy on the same prompts took 0.3% more time the second time, with
# an interval from 1.0% less to 1.9% more. Errors of that size may be the clock's, not the
# prediction's. `simkit fidelity` gives a verdict only if that interval lies within 3% of 1, as it
# does here: nothing else ran on that core.

# %% [markdown]
# ## What does the rule itself cost?
#
# Heads, and rules that look at tokens, take time. `free` is the predicted speedup if they took
# none.

# %%
run.policies.filter(pl.col("predicted_policy_s") > 0).select(
    "policy",
    measured_ms_per_step=1e3 * pl.col("policy_s"),
    predicted_ms_per_step=1e3 * pl.col("predicted_policy_s"),
    predicted="predicted",
    free="free",
)

# %% [markdown]
# **What it shows.** A rule that looks at each token takes 0.2–0.3 ms a step, and PACER's head with
# its rule 0.89 ms. The predictions agree, except that `confidence` is predicted a sixth too high.
# Without that time, PACER's predicted speedup would be 2.13 instead of 2.04, and the others' 1–2%
# higher. On a pair this small the Python around a call takes longer than its arithmetic.
#
# **The paper's.** PACER's Table 15: 2.1% of the time for the head, beside models a thousand times
# as large. **Agrees** that the share is small; here it is 4%.

# %% [markdown]
# ## Could the times of another machine have done?
#
# The trace has its own times, which `simkit calibrate` measured on another, slower machine. The
# steps are the same; only the seconds differ.

# %%
elsewhere = simkit.replay(trace, specs, by="sequence").frame
elsewhere = elsewhere.with_columns(
    pl.col("policy").replace(specs, run.policies["policy"].to_list())
)
(
    elsewhere.join(live, on=["policy", "sequence"], how="semi")
    .group_by("policy", maintain_order=True)
    .agg(elsewhere=pl.col("baseline_s").sum() / pl.col("total_s").sum(), **per_pass)
    .join(run.policies.select("policy", "predicted", "measured"), on="policy")
    .with_columns(error=pl.col("elsewhere") / pl.col("measured") - 1)
)

# %% [markdown]
# **What it shows.** Steps travel from machine to machine, seconds do not: passes of the draft take
# twice as long there, those of the target 1.4 times. Part of that cancels in a speedup: errors are
# 0% to 4%, with a median of 3.1%, against 0.9% with the run's own times. But on the slower machine
# a draft pass costs more relative to a target pass. So the two rules with the longest drafts,
# `fixed(9)` and `heuristic`, are predicted 3–4% too slow, and the others up to 4% too fast. The
# heuristic, measured as the fastest, is predicted fourth. Time a pair on the machine where it will
# run.

# %% [markdown]
# ## Now with your trace
#
# The run above is of the reference pair, whatever `TRACE` is. To make a run of your pair, on the
# machine on which you will decode:
#
#     simkit fidelity my-trace --target TARGET --draft DRAFT -o my-run
#     simkit replay my-trace --policy 'fixed(3)' --cost my-run/cost.parquet
#
# Read the result with `fidelity.load("my-run")`. Nothing else may run on that machine during the
# run. Your errors will differ from those above: they depend on the machine, on how repeatable its
# times are, and on how many prompts were timed. Read on: [fidelity](../docs/fidelity.md),
# [costs](../docs/costs.md), [how a replay works](../docs/how-it-works.md).
