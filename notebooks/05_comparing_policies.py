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
from analysis import Study, figures
from analysis.stats import compare

# %% tags=["parameters"]
TRACE = "smollm2"

# %% [markdown]
# ## How fast is each policy?
#
# A trace holds what both models said at every position of every text, so a replay knows each step
# that a policy would have taken. This one is of SmolLM2-135M-Instruct, a small chat model, with a draft
# of 8 million parameters, on 300 prompts ([about it](../docs/smollm2.md)). The seconds come from running
# decoders of the same two models on one CPU thread: means of passes, of each rule's decisions, of heads,
# and what a step's loop takes. The trace has drafts of 16 tokens, so no rule may draft more:
# `max_draft=16`.

# %%
study = Study(TRACE)
trace = study.trace
specs = [
    "fixed(1)",
    "fixed(5)",
    "svip(h=1, max_draft=16)",
    "heuristic(initial=1, max_draft=16)",
    "confidence(threshold=0.8, max_draft=16)",
    "oracle(max_draft=16)",
]
result = simkit.replay(trace, specs)
result

# %% [markdown]
# **What it shows.** Speedup is over decoding with the target alone, a ratio of summed seconds; the
# brackets are a 95% bootstrap interval over the 300 prompts, with the spread of the timing samples in it.
# The best fixed draft, of one token, is at 1.155 [1.118, 1.192]. `svip(h=1)`, which stops by entropy, and
# `confidence(threshold=0.8)`, which stops when the draft gave its own token less than that, are at 1.17
# [1.13, 1.21]. `heuristic`, which drafts longer after a whole draft was accepted and shorter after a
# rejection, is at 1.04, and a constant five, usual in papers, loses: 0.74. The `oracle` drafts exactly
# what will be accepted, which nobody can know: 1.42.
#
# Nine tenths of the time are verification, so a rule is judged by the target passes that it saves and by
# what they hold. `svip` drafts an eighth more than `fixed(1)`, where it is sure, and saves a twentieth of
# the passes. Its decisions, 33 s, and the draft passes eat up most of it.
#
# **Caveat.** The intervals overlap. That does not mean that two policies cannot be told apart, as the
# next table shows.

# %% [markdown]
# ## Is one faster than the other?
#
# All policies decode the same prompts with the same random numbers. So compare them prompt by
# prompt: how hard a prompt is cancels out.

# %%
fixed, five, svip, heuristic, confidence, oracle = specs
pairs = [
    (svip, fixed),
    (confidence, fixed),
    (svip, confidence),
    (svip, five),
    (svip, heuristic),
]
pl.DataFrame([vars(result.compare(a, b)) for a, b in pairs])

# %% [markdown]
# **What it shows.** `speedup` is how many times faster a is than b. SVIP and `confidence` beat the best
# fixed length by 1.0% each, and the intervals do not hold 1, although the policies' own overlap
# nearly whole. From each other they are not distinguishable. Over a constant five SVIP gains 57%
# [53%, 60%], over the heuristic 12%.
#
# **The paper's.** SVIP's Table 1 has SVIP 1.15–1.21 times as fast as a constant draft of 5. Here it is
# 1.57. That comparison depends on the constant, and says little about the rule: where two tokens in five
# are accepted and verification is dear, five is far too many.
#
# **Caveat.** These arguments (1, 1, 1, 0.8) were picked by looking at this trace.

# %% [markdown]
# ## With which arguments?
#
# A replay takes milliseconds, so try them all. A spec may hold ranges, `first:last:step`.

# %%
families = [
    "fixed(0:16)",
    "svip(h=0.1:3:0.1, max_draft=16)",
    "heuristic(initial=1:16:3, max_draft=16)",
    "confidence(threshold=0.05:0.95:0.05, max_draft=16)",
]
simkit.sweep(trace, families)

# %% [markdown]
# **What it shows.** The ten fastest of 72 settings are SVIP with thresholds from 0.7 to 1.1 and
# `confidence` with thresholds from 0.7 to 0.9, all between 1.162 and 1.166: the optimum is flat, which is
# good news for whoever has to pick an argument without a trace. A lower threshold makes `confidence`
# draft more and decide more often: from 0.9 down to 0.7 its decisions go from 27.6 to 30.7 s.

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
# **What it shows.** Over twenty deals of five folds each, a fixed length of 1 and the heuristic that
# starts with 1 are chosen every time, SVIP's h = 1 in 94 folds of 100. What is chosen on other prompts is
# hardly slower than what is best in sample: 1.165 against 1.166. Against the tuned fixed length SVIP is
# 1.009 [1.004, 1.015] times as fast, `confidence` 1.009 [1.003, 1.016], the heuristic 0.901. "Best of
# all" chooses the family, too, on the other prompts.
#
# **The paper's.** Papers choose on the prompts that they report. With few settings and 300 prompts that
# does no harm; with a hundred settings and twenty prompts it may do more.
#
# **Caveat.** The intervals resample prompts and keep the chosen settings: how the choice itself
# would vary is not in them, nor is the spread of the times.

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
# **What it shows.** Where three policies are compared all three differences stand; `confidence`'s lower
# end for all at once is 1.002. In the next figure there are fourteen, twelve policies and the two bounds
# that know the future, and the spread of the times is in the intervals: they are wider, and `confidence`
# stands by a hair, 1.0004.

# %% [markdown]
# ## Where does each policy stand?
#
# Every policy that a drafter can follow, tuned on other prompts: its speed against the share of its
# time that emits nothing: decisions, heads, and draft tokens that were not accepted.

# %%
figures.frontier(study)

# %% [markdown]
# **What it shows.** A policy is on the line if none with less overhead is faster. Six are faster than the
# best fixed length, their simultaneous intervals above 1: the best rate, 1.017 [1.005, 1.029], cumulative
# confidence, 1.011 [1.003, 1.019], AdaEDL, SVIP, `confidence` and Draft & Verify, between 1.008 and 1.010.
# PACER is slower, 0.986 [0.982, 0.991], and so are SpecDec++ and the acceptance head, at 0.96 and 0.97,
# llama.cpp's rule and the two that adapt to the last draft.
#
# **The paper's.** No paper has this figure. PACER's Table 3 compares three dynamic policies on one
# benchmark: PACER 1.14, AdaEDL 1.06 and SpecDec++ 1.00 times as fast as plain speculation. Here
# they are at 0.99, 1.01 and 0.96.
#
# **Caveat.** A rule with a head always drafts a token before it asks, and pays for asking: SpecDec++'s
# and the acceptance head's best settings draft one token nearly always. The heads know less than the
# draft's own probability does ([heads](../docs/heads.md#on-a-real-model)). A call of PACER's head takes a
# fifth of a draft pass, a ninth in the paper's Table 14. [06](06_heads_and_calibration.ipynb) has more on
# heads.

# %% [markdown]
# ## How much is left?
#
# `prophet` knows the future and the clock, and drafts what makes the total time shortest: no policy
# that drafts and verifies in turn can be faster. The gap from the best fixed length to it, one length
# for all tasks, has parts.

# %%
figures.gap_decomposition(study)

# %%
analysis.gap(trace, families[1:])

# %% [markdown]
# **What it shows.** The prophet would save 19% of the fixed length's time. With all policies to choose
# from (the figure) the best one saves 1.7% [1.0%, 2.3%], 9% [6%, 12%] of the gap: it is the best rate in
# every fold. On `humaneval` it is 5% of 24%, on nine of fourteen tasks nothing that can be told from none.
# With only the three families of this notebook (the table) it saves 0.8% [0.4%, 1.4%]. Decisions take
# 0.5% and 0.4%.
#
# **The paper's.** PACER's Fig. 2b has the optimal length 1.4 times as fast as the best fixed one;
# here it is 1.23. How much of that a drafter can know, the paper does not ask.
#
# **Caveat.** "Out of reach" means for these policies. A better signal moves the line, and so does a
# cheaper one.

# %% [markdown]
# ## Does the winner stay the winner on other machines?
#
# Only the seconds belong to a machine: the same steps can be given other times. Here c, the time of
# a target pass over that of a draft pass, runs along one axis, and prompts are grouped by how much
# the two models agree.

# %%
figures.best_policy_map(study)

# %% [markdown]
# **What it shows.** Where the draft is dear, up to c = 2, and where it agrees little (lower left), the
# target alone is the fastest. With cheap drafts and prompts that agree (right) cumulative confidence is;
# between them it takes turns with `confidence` and SVIP, and a fixed length wins in a few places. This
# pair's c is 11.4 on the CPU that timed it. But most cells between have no star, that is no winner that
# won 95% of the resamples: there the choice of the policy matters less than having a good length.
#
# **Caveat.** The map charges passes and nothing else. Decisions are free in it, which favours the
# rules that look at every token.

# %% [markdown]
# ## A rule of your own
#
# Every name in the table of [policies](../docs/policies.md) takes arguments, and several are older
# rules with their knobs free: `cumulative_confidence` multiplies the draft's probabilities along
# the draft, `llamacpp` looks at the top ten tokens only, `rate_optimal` has no threshold at all,
# but asks whether the next token is worth its time. Policies are also objects.

# %%
own = [
    simkit.policies.SVIP(h=0.7, scale=0.5, max_draft=12),
    "cumulative_confidence(threshold=0.5, max_draft=16)",
    "llamacpp(p_min=0.8, keep=true, max_draft=16)",
    "rate_optimal(max_draft=16)",
]
simkit.replay(trace, own)

# %% [markdown]
# **What it shows.** Speedups between 1.16 and 1.17. The arguments are near those that tuning
# chooses for this trace (SVIP with scale 0.5 and h = 0.7 stops where h = 0.99 with scale 1 does), so
# these figures flatter; `rate_optimal` is fitted on other prompts by itself. It has no threshold to tune
# and is the fastest of them, at 1.174 [1.134, 1.216]: it knows what a verification of one token more
# takes on this machine.
#
# A rule that is not in the table is a Python function of the depth and of the columns that it wants to
# see, or a class that remembers what came of its drafts. `unsure` stops where the draft spreads its
# probability, and sooner from the second token on; `Learning` has one threshold, which rises with each
# draft that was rejected somewhere and falls with each that was accepted whole.

# %%
reads = ("draft_prob_raw", "draft_entropy")


@simkit.policy(columns=reads, max_draft=16)
def unsure(depth, row):
    return (depth >= 2 and row.draft_prob_raw < 0.9) or row.draft_entropy > 1


@simkit.policy(columns=("draft_prob_raw",), max_draft=16)
class Learning:
    def __init__(self, first=0.8):
        self.threshold = first

    def stop(self, depth, row):
        return row.draft_prob_raw < self.threshold

    def update(self, outcome):
        self.threshold += 0.02 if outcome.accepted < outcome.drafted else -0.01


simkit.replay(trace, ["fixed(1)", unsure, Learning(first=0.8)])

# %% [markdown]
# **What it shows.** `unsure`, whose numbers nobody tuned, is at 1.16 [1.13, 1.21]: it drafts an eighth more
# than `fixed(1)` and needs 5% fewer target passes. `Learning` stays near one token a draft, and near
# `fixed(1)`. As the note says, their decisions were timed on the machine that ran this cell: a
# rule of one's own is not free. Either can be tuned like any other
# ([more on rules of your own](../docs/extending.md)).

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder. It is made by
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# The second times passes, decisions and the loop in running decoders; after `simkit latency`, which
# times passes alone, decisions would be free. Then the numbers in the text above are no longer those
# of the tables. Look first at *chosen in folds*: where folds choose different settings, tune on more
# prompts. Policies with learned heads (PACER, SpecDec++, the acceptance head) are left out until
# `simkit score` has written their scores; give their files to `simkit calibrate --head`, too. Read on:
# [sweeps and tuning](../docs/sweeps.md), [bounds](../docs/bounds.md),
# [statistics](../docs/statistics.md), and [06](06_heads_and_calibration.ipynb) about heads.
