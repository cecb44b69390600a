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

# %% tags=["parameters"]
TRACE = "reference"
SAMPLED = "reference-sampled"

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
# **What it shows.** Marginal acceptance falls from 0.617 at depth 1 to 0.096 at depth 8 and
# 0.038 at 16. Conditional acceptance *rises*: 0.617 at depth 1, 0.803 at 4, 0.955 at 16. A draft
# that has got far is likely to get further.
#
# **The paper's.** PACER's Fig. 6 declines sharply. Read as marginal, ours agrees; read as
# conditional, ours is the other way round. The dotted line is what independent tokens of one
# acceptance α would give: αʲ, falling too, with nothing about position in it. A falling marginal
# curve alone is no evidence that depth matters.
#
# **Caveat.** At depth 16 few drafts are left (*at_risk*), from fewer prompts. Drafts that the end
# of the text cuts off are not counted as rejected; they leave the statistic where they were cut.
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
# **What it shows.** Tasks differ, and within them the curves are less even. On `math` acceptance is
# highest at depth 2 and lower again at 8. On the others it still rises: a task, too, is a mixture
# of easy and hard prompts.
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
# **What it shows.** Over all prompts the correlation is 0.171. Within prompts it is −0.011, with 0
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
# **What it shows.** 72.5% of tokens are accepted, and the variance of run lengths is 2.5 times that
# of independent tokens: many short runs, some long. The closed forms of notebook 04 assume that runs
# are geometric.
#
# **Caveat.** The interval of the 2.5 reaches from nearly 1 to 16, since so much hangs on a single run
# of 206 tokens. It is a loop in one prompt, and brings two fifths of the variance: 16.4 with it, 10.0
# without, which would be 1.5 times that of independent tokens. Fourteen other loops go on to the end
# of their texts. How long they would have been is not known, so the dispersion leaves them out, and
# on other prompts there may be more that end, or none.
#
# ## Does it matter where drafts start?
#
# A decoder's steps start behind a rejection, or behind a draft that was accepted whole. The trace
# knows the drafts from every position.

# %%
figures.position_decay(TRACE, starts="every")

# %% [markdown]
# **What it shows.** Both curves lie higher: at depth 8 about a fifth of the drafts survive, twice
# the share above. A run of n accepted tokens counts n times here, once from each of its tokens, so
# long runs weigh more. Papers count steps; say which you mean.
#
# ## And when tokens are sampled?

# %%
figures.position_decay(SAMPLED)

# %% [markdown]
# **What it shows.** The same two directions, more evenly: marginal from 0.60 to 0.01, conditional
# from 0.60 to 0.84. Fewer drafts go very far.
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
# **What it shows.** It makes no difference that could be told from none: every ρ from 1.00 to 1.09
# is within 0.3% of 1.05 under the trace's own times, its head's among them. That is what
# rising conditional acceptance leads one to expect ([ablations](../docs/ablations.md) looks closer).
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
