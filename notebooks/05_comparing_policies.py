# %% [markdown]
# # 05 · Comparing policies
#
# A policy decides when the draft model stops. Which policy is the fastest, and how sure can one be?
# All five papers have tables of speeds, but none shows how much the numbers would change on other
# prompts. Here policies are replayed on one trace and compared prompt by prompt, with intervals.
# They are tuned on other prompts than those that judge them, and compared with the fastest possible
# policy.

# %%
import polars as pl

import analysis
import simkit
import traces
from analysis import Study, figures
from analysis.stats import compare

# %% tags=["parameters"]
TRACE = "smollm2"

# %% [markdown]
# ## Which policies are fast at the papers' acceptance?
#
# The first figure uses a draft of which 80% of the tokens are accepted:
# [`ladder`](../docs/ladder.md) has SmolLM2-135M-Instruct, a small chat model, as the target, and
# the same model rounded to 3 bits a weight as the draft (`q3-g32`), greedy, on 56 prompts. Such a
# draft is as slow as its target, so the figure borrows a GPU's times: those of Qwen2.5-32B with
# Qwen2.5-0.5B on an H200. It plots each policy's speed against its overhead, the share of time that
# emits nothing: decisions, heads, and draft tokens that were not accepted. Each policy is tuned on
# other prompts than those that judge it.

# %%
ladder = traces.load("ladder/drafters/q3-g32")
figures.frontier(ladder, cost="atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)")

# %% [markdown]
# **What it shows.** Speeds are relative to the best fixed length, 5, with simultaneous 95%
# intervals. Nine policies are faster. The best rate (`rate_optimal`), 1.11, and cumulative
# confidence, 1.10 [1.08, 1.13], are first, then `confidence`, 1.08 [1.04, 1.12], Draft & Verify,
# 1.07, the acceptance head, 1.06, SVIP and AdaEDL, 1.05, SpecDec++, 1.04, and PACER, 1.03. The
# heuristic, llama.cpp's rule and adaptive confidence do not differ measurably from the fixed length. Knowing
# the future would give 1.44 (not drawn).
#
# **Caveat.** Acceptance and times are of different pairs. The atlas has no times of decisions, so
# they were timed on the machine that ran this cell. They vary from run to run, most for the best
# rate, which was slower than the fixed length when the machine was busy. They are Python calls; in
# an engine they may take less time. A rounded copy of the target is not an independent draft model:
# its probabilities are close to the target's, which favours the rules that read them.
#
# All other cells use the trace named above, with a weak independent draft on a CPU. There the gains
# are much smaller.

# %% [markdown]
# ## How fast is each policy?
#
# A trace has both models' outputs at every position of every text, so a replay takes exactly the
# steps that a policy would have taken. This trace has SmolLM2-135M-Instruct with an independent
# draft model of 8 million parameters, of which 40% of the tokens are accepted, on 300 prompts
# ([details](../docs/smollm2.md)). The seconds were measured in running decoders of the same two
# models on one CPU thread: means of passes, of each rule's decisions, of heads, and of the loop
# around a step. The trace has drafts of at most 16 tokens, so no rule may draft more:
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
# **What it shows.** Speedup is over decoding with the target alone, a ratio of summed seconds. Brackets
# are 95% bootstrap intervals over the 300 prompts, and include the spread of the timing samples.
#
# - The best fixed length, 1, is at 1.233 [1.212, 1.253]. A constant five, usual in papers, is slower
#   than the target alone: 0.81.
# - `svip(h=1)` stops by entropy. `confidence(threshold=0.8)` stops when the draft gave its own token a
#   lower probability. Both are at 1.244 [1.222, 1.270].
# - `heuristic` drafts longer after a draft that was accepted whole, and shorter after a rejection: 1.11.
# - `oracle` drafts exactly what will be accepted, which no decoder can know: 1.45.
#
# Nearly nine tenths of the time is verification. So a policy gains by saving target passes, and loses by
# making them longer. `svip` drafts an eighth more than `fixed(1)`, where the draft is sure, and saves a
# twentieth of the target passes, 93 s. More than half of that is lost again: 31 s to more draft passes, 26
# s to decisions.
#
# **Caveat.** The intervals overlap. The policies may still differ measurably, as the next table shows.

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
# **What it shows.** `speedup` is the speed of a over that of b. SVIP is 0.9% faster than the best fixed
# length, `confidence` 1.0%. The intervals do not contain 1, although the policies' own intervals overlap
# almost completely. SVIP and `confidence` do not differ measurably. SVIP is 54% [51%, 58%] faster than a
# constant five, and 12% faster than the heuristic.
#
# **The paper's.** SVIP's Table 1 has SVIP 1.15–1.21 times as fast as a constant draft of 5. Here it is
# 1.54. That comparison depends on the constant and shows little about the rule: where two tokens in five
# are accepted and verification is expensive, five is far too many.
#
# **Caveat.** These arguments (1, 1, 1, 0.8) were chosen by looking at this trace.

# %% [markdown]
# ## With which arguments?
#
# A replay takes milliseconds, so try them all. A policy's argument may be a range, `first:last:step`.

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
# `confidence` with thresholds from 0.7 to 0.9, all between 1.240 and 1.244. The optimum is flat, so an
# argument chosen without a trace costs little. With a lower threshold `confidence` drafts more and decides
# more often: from 0.9 down to 0.7 its decisions rise from 20.7 to 23.0 s.

# %% [markdown]
# ## How fast is the best setting on prompts that did not choose it?
#
# The best of many settings looks too good on the prompts that it was chosen on. `tune` deals the
# prompts into five folds, chooses on four and times on the fifth. The reference is a fixed length,
# chosen in the same way.

# %%
tuned = simkit.tune(trace, families[1:])
tuned

# %% [markdown]
# **What it shows.** In all of the twenty deals of five folds, the fixed length is 1 and the heuristic
# starts with 1; SVIP's h is 1 in 97 folds of 100. Settings that were chosen on other prompts are hardly
# slower than the best in sample: 1.243 against 1.244 for "best of all", which also chooses the family on
# the other prompts. Against the tuned fixed length SVIP is 1.009 [1.004, 1.015] times as fast,
# `confidence` 1.009 [1.003, 1.016], the heuristic 0.898 [0.892, 0.905].
#
# **The paper's.** Papers choose on the prompts that they report. With few settings and 300 prompts that
# does no harm; with a hundred settings and twenty prompts it may do more.
#
# **Caveat.** The intervals resample prompts and keep the chosen settings. They contain neither the
# spread of the choice itself nor that of the times.

# %% [markdown]
# ## Three comparisons or fourteen: which differences survive?
#
# At 95% one comparison in twenty finds a difference where there is none. With many policies, correct for
# their number: `compare` adjusts p-values (Holm), and `simultaneous` gives intervals that hold for all
# policies at once.

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
# **What it shows.** All three differences remain; the lower end of the simultaneous interval of
# `confidence` is 1.002. The next figure makes fourteen comparisons: twelve policies and the two
# bounds that know the future. Its intervals also contain the spread of the times. So they are
# wider, and that of `confidence` begins at only 1.0002.

# %% [markdown]
# ## Where does each policy stand?
#
# The figure is drawn like the first one, for the weak draft: speed against overhead of every policy
# that a drafter can follow, tuned on other prompts.

# %%
figures.frontier(study)

# %% [markdown]
# **What it shows.** A policy is on the line if none with less overhead is faster. Compared with the best
# fixed length, with simultaneous 95% intervals:
#
# - Six policies are faster: the best rate (`rate_optimal`), 1.019 [1.007, 1.032], cumulative confidence,
#   1.012 [1.004, 1.020], and SVIP, AdaEDL, `confidence` and Draft & Verify, 1.008 to 1.009. The lower ends of
#   these four are at most 1.0009.
# - The acceptance head, 0.983 [0.960, 1.006], and SpecDec++, 0.978 [0.955, 1.001], do not differ
#   measurably.
# - PACER is slower, 0.982 [0.972, 0.993], and so are llama.cpp's rule, 0.92, the heuristic, 0.90, and
#   adaptive confidence, 0.72.
#
# **The paper's.** No paper has this figure. PACER's Table 3 compares three dynamic policies on one
# benchmark: PACER 1.14, AdaEDL 1.06 and SpecDec++ 1.00 times as fast as plain speculation. Here
# they are at 0.98, 1.01 and 0.98.
#
# **Caveat.** The heads predict acceptance less well than the draft's own probability does
# ([heads](../docs/heads.md#on-a-real-model)), and each call takes time. With their best settings SpecDec++
# and the acceptance head draft two tokens in nearly every step. A call of PACER's head takes a third of a
# draft pass, a ninth in the paper's Table 14. [06](06_heads_and_calibration.ipynb) has more on heads.

# %% [markdown]
# ## How much is left?
#
# `prophet` knows the future and all times, and drafts what makes the total time shortest: no policy
# that drafts and verifies in turn can be faster. The figure divides the gap between it and the best
# fixed length, one length for all tasks.

# %%
figures.gap_decomposition(study)

# %%
analysis.gap(trace, families[1:])

# %% [markdown]
# **What it shows.** The prophet would save 15% of the fixed length's time. With all policies to choose
# from (the figure), the best one saves 1.9% [1.2%, 2.6%], which is 13% [9%, 17%] of the gap. It is
# `rate_optimal` in every fold. On `humaneval` it saves 6% of 22%; on nine of fourteen tasks the saving is not
# measurable. With only the three families of this notebook (the table) the best policy saves 0.9%
# [0.3%, 1.5%]. Decisions take 0.7% and 0.5%.
#
# **The paper's.** PACER's Fig. 2b has the optimal length 1.4 times as fast as the best fixed one;
# here it is 1.18. The paper does not ask how much of that a drafter can know.
#
# **Caveat.** "Out of reach" means out of reach for these policies. A better signal would reach more, and
# so would a cheaper one.

# %% [markdown]
# ## Does the winner stay the winner on other machines?
#
# Only the seconds belong to a machine: the same steps can be given other times. Here c, the time of
# a target pass over that of a draft pass, is on one axis. On the other, prompts are grouped by how much
# the two models agree.

# %%
figures.best_policy_map(study)

# %% [markdown]
# **What it shows.** Where the draft is expensive or agrees little (left, lower left), the target
# alone is the fastest. Where drafts are cheap and the models agree (right), cumulative confidence
# is the fastest. Between these regions it is `confidence`, SVIP or cumulative confidence, and in
# three cells a fixed length. This pair's c is 15.8 on the CPU that timed it. Most cells between the
# regions have no star: no policy won 95% of the resamples. There a good length matters more than
# the choice of the policy.
#
# **Caveat.** The map charges passes only, and a target pass costs the same for any number of tokens.
# Decisions are free in it, which favours the rules that look at every token.

# %% [markdown]
# ## A rule of your own
#
# Every name in the table of [policies](../docs/policies.md) takes arguments, and several are older
# rules with their constants as arguments: `cumulative_confidence` multiplies the draft's probabilities
# along the draft, and `llamacpp` looks at the top ten tokens only. `rate_optimal` has no threshold; it
# drafts on if the next token is worth its time. Policies are also objects.

# %%
own = [
    simkit.policies.SVIP(h=0.7, scale=0.5, max_draft=12),
    "cumulative_confidence(threshold=0.5, max_draft=16)",
    "llamacpp(p_min=0.8, keep=true, max_draft=16)",
    "rate_optimal(max_draft=16)",
]
simkit.replay(trace, own)

# %% [markdown]
# **What it shows.** Speedups between 1.237 and 1.257. The arguments are near those that tuning
# chooses for this trace, so these speedups are a little too high. (SVIP with scale 0.5 and h = 0.7
# stops where h = 0.99 with scale 1 does.) `rate_optimal` has no threshold to tune; it fits itself
# on other prompts. It is the fastest of them, 1.257 [1.234, 1.281]: it uses the time that one more
# token adds to a verification on this machine.
#
# A rule that is not in the table is a Python function of the depth and of the columns that it reads,
# or a class that remembers the outcomes of its drafts. `unsure` stops where the draft spreads its
# probability, and sooner from the second token on. `Learning` has one threshold: it rises with each
# draft of which a token was rejected, and falls with each that was accepted whole.

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
# **What it shows.** `unsure`, whose numbers nobody tuned, is at 1.243 [1.221, 1.267]: it drafts an eighth
# more than `fixed(1)` and needs 5% fewer target passes. `Learning` stays near one token a draft, and
# near `fixed(1)` in speed. As the note under the table says, their decisions were timed on the machine
# that ran this cell: a rule of one's own is not free. Either can be tuned like any other
# ([more on rules of your own](../docs/extending.md)).

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder, and use it instead of `ladder` in the first figure. It is made by
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# The second command times passes, decisions and the loop in running decoders; `simkit latency`
# times passes only, and decisions would then be free. The numbers in the text above are those of
# the bundled traces, not of your tables. Look first at *chosen in folds*: where folds choose
# different settings, tune on more prompts. Policies with learned heads (PACER, SpecDec++, the
# acceptance head) are left out until `simkit score` has written their scores; give their files to
# `simkit calibrate --head`, too. Read on:
# [sweeps](../docs/choose.md#sweep-every-setting-side-by-side),
# [tuning](../docs/choose.md#tune-how-good-is-the-best-setting-really),
# [bounds](../docs/policies.md#bounds), [statistics](../docs/statistics.md), and
# [06](06_heads_and_calibration.ipynb) about heads.
