# %% [markdown]
# # 03 · Position decay
#
# Are tokens deeper in a draft less likely to be accepted? PACER says so (*acceptance rates decrease
# with draft position*), and builds on it: its threshold grows with depth. PARD-2 draws the same
# decline. But the sentence can mean two things, and they go opposite ways.
#
# *Marginal* acceptance at depth j is the share of drafts whose first j tokens are all accepted. It
# must fall, since a draft ends with its first rejected token. *Conditional* acceptance is the share
# accepted at depth j among drafts whose earlier tokens were all accepted. It need not fall.

# %%
import polars as pl

import traces
from analysis import claims, figures
from analysis.stats import clusters, depth, drafts, iid
from simkit.drafters.path import PathLayout

_ = pl.Config.set_float_precision(3)
_ = pl.Config.set_tbl_rows(20)

# %% [markdown]
# Both traces are of SmolLM2-135M-Instruct, a small chat model, with a draft of 8 million parameters,
# on 300 prompts ([about them](../docs/smollm2.md)); the second at temperature 1.

# %% tags=["parameters"]
TRACE = "smollm2"
SAMPLED = "smollm2-sampled"

# %% [markdown]
# ## What becomes of drafts of 16 tokens?
#
# A decoder that drafts 16 tokens in every step, `fixed(16)`, replayed over all prompts.

# %%
drawn = figures.position_decay(TRACE)
drawn

# %%
drawn.frame.filter(
    pl.col("series").is_in(["conditional", "marginal"]), pl.col("depth").is_in([1, 4, 8, 16])
).select("series", "depth", "at_risk", "acceptance", "acceptance_lo", "acceptance_hi")

# %% [markdown]
# **What it shows.** Marginal acceptance falls from 0.368 at depth 1 to 0.034 at depth 4 and
# 0.004 at 8. Conditional acceptance *rises*: 0.368 at depth 1, 0.532 at 4, 0.696 at 8. A draft
# that has got far is likely to get further. Outside of verbatim loops of the output it rises too, to
# about 0.6 at depth 6, and no further.
#
# **The paper's.** PACER's Fig. 6 declines sharply. Read as marginal, ours agrees; read as
# conditional, ours is the other way round. The dotted line is what independent tokens of one
# acceptance α would give: αʲ, falling too, with nothing about position in it. A falling marginal
# curve alone is no evidence that depth matters.
#
# **Caveat.** Of 56,072 drafts 283 get to depth 8 and 31 to depth 16 (*at_risk*), most of these in
# one text that is a loop, so the last points have no intervals. Drafts that the end of the text cuts
# off are not counted as rejected; they leave the statistic where they were cut.
#
# ## Why does it rise?
#
# Either acceptance feeds on itself, or easy texts survive: at depth 1 all drafts are counted, at
# depth 16 only those that got there, and they are the ones in easy texts. If the latter, the rise
# should be weaker within a task.

# %%
trace = traces.load(TRACE)
ahead = PathLayout(trace).ahead
tasks = pl.from_arrow(trace.sequences)["task"]
rows = []
for task in tasks.unique(maintain_order=True):
    positions, offsets = clusters.of_prompts(trace.position_offsets, (tasks == task).to_numpy())
    steps = drafts.fixed_steps(ahead[positions], offsets, trace.max_new_tokens, 16)
    curve = depth.by_depth(steps, 16).conditional
    rows.append(
        {"task": task}
        | {f"depth {j}": curve[j - 1].value for j in (1, 2, 4, 8, 12) if j <= len(curve)}
    )
pl.DataFrame(rows, infer_schema_length=None)

# %% [markdown]
# **What it shows.** Tasks differ: at depth 1 from 0.25 on summaries to 0.47 on `math`. Within
# thirteen of the fourteen acceptance is higher at depth 4 than at depth 1, on `humaneval` by 0.3: a
# task, too, is a mixture of easy and hard prompts. At depths 8 and 12 a task has too few drafts left to
# say.
#
# Another look: does one accepted token make the next one likelier? Measure the correlation of
# acceptance with that of the next position, once from the mean of all prompts, and once from each
# prompt's own mean, which takes out that prompts differ.

# %%
accepted = trace.positions("accepted")
pl.DataFrame(
    [
        {"from the mean of": "each prompt" if within else "all prompts"}
        | vars(iid.autocorrelation(accepted, trace.position_offsets, within=within))
        for within in (False, True)
    ]
).drop("note")

# %% [markdown]
# **What it shows.** Over all prompts the correlation is 0.075. Within prompts it is 0.004, with 0
# well inside the interval: nothing is left. On average an accepted token tells that the prompt is
# an easy one, and no more. What rises with depth is the share of easy prompts.
#
# How unlike are the runs of accepted tokens? For independent tokens of one α their lengths would be
# geometric, and their *dispersion*, variance over that of a geometric law, 1.

# %%
runs = drafts.runs(accepted, trace.position_offsets)
fit = iid.run_lengths(runs)
pl.DataFrame(
    [
        {"what": "alpha"} | vars(fit.alpha),
        {"what": "dispersion"} | vars(fit.dispersion),
    ]
).drop("note")

# %%
lengths = pl.DataFrame({"tokens": runs.accepted, "rejected": runs.rejected})
ended = lengths.filter("rejected").sort("tokens", descending=True)
parts = {
    "ended by a rejection": ended,
    "the same, without the longest": ended[1:],
    "cut off by the end of the text": lengths.filter(~pl.col("rejected")),
}
pl.concat([part.with_columns(runs=pl.lit(what)) for what, part in parts.items()]).group_by(
    "runs", maintain_order=True
).agg(
    number=pl.len(),
    over_100=(pl.col("tokens") > 100).sum(),
    longest=pl.col("tokens").max(),
    variance=pl.col("tokens").var(ddof=0),
)

# %% [markdown]
# **What it shows.** 39.7% of tokens are accepted, and the variance of run lengths is 1.28
# [1.20, 1.39] times that of independent tokens: somewhat more short runs and long ones. The closed
# forms of notebook 04 assume that runs are geometric, and are not far off here.
#
# **Caveat.** No run that a rejection ends is longer than 16 tokens, and none hangs on one prompt. But
# one loop goes on for 467 tokens to the end of its text. How long it would have been is not known, so
# the dispersion leaves it out. On the toy pair of the other notebooks a single loop that does end
# brings two fifths of the variance, and the interval reaches from 1 to 16.
#
# ## Does it matter where drafts start?
#
# A decoder's steps start behind a rejection, or behind a draft that was accepted whole. The trace
# knows the drafts from every position.

# %%
figures.position_decay(TRACE, starts="every")

# %% [markdown]
# **What it shows.** Both curves lie higher, and with loops the conditional one goes up to 0.99: a run
# of n accepted tokens counts n times here, once from each of its tokens, so the one of 467 makes
# nearly all drafts that reach depth 16. Papers count steps; say which you mean.
#
# ## And when tokens are sampled?

# %%
figures.position_decay(SAMPLED)

# %% [markdown]
# **What it shows.** The same two directions: marginal from 0.36 to nothing, conditional from 0.36 to
# 0.60 at depth 8. There are no loops to speak of, and two drafts of 57,894 reach depth 16.
#
# ## Does a threshold that grows with depth help?
#
# PACER stops a draft when its head's predicted acceptance falls below a threshold, and multiplies
# the threshold by ρ = 1.05 after every block of tokens, because deeper tokens were found to be
# worse. Here is its speed by ρ.

# %%
figures.pacer_growth(TRACE)

# %%
wanted = ("marginal_falls", "conditional_falls", "growth_helps", "growth_shortens")
claims.check(TRACE, claims=[one for one in claims.claims() if one.name in wanted])

# %% [markdown]
# **What it shows.** Nothing: whatever ρ is, the steps are all but the same. A threshold can grow only after
# a block of four tokens, and here hardly any draft gets past the first. That would be so with any head
# where two tokens in five are accepted; on the toy pair of the other notebooks, too, every ρ is within
# 0.5% of 1.05 ([ablations](../docs/ablations.md)). And conditional acceptance does not fall, which
# growth is for.
#
# **The paper's.** Table 12 has ρ = 1.05 best by 0.5% to 6%. **Caveat.** The paper's pairs accept
# longer runs, and its head knows the depth already.
#
# ## Now with your trace
#
# Set `TRACE` to your folder, and `SAMPLED` to a recording at `--temperature 1`, or delete its cell.
# The numbers in the text are those of the bundled traces. Look first whether *conditional* acceptance
# rises or falls, and whether within prompts it still does: that tells whether a rule should trust
# depth, or the text. The cells on growth need scores of a trained PACER head
# ([heads](../docs/heads.md)) and times, the head's among them:
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT --head pacer.safetensors
#
# The estimators and their intervals are in [statistics](../docs/statistics.md). Next:
# [the optimal draft length](04_optimal_gamma.ipynb).
