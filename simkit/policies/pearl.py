"""Draft and target at work at the same time (PEARL)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from simkit.errors import CostError, PolicyError
from simkit.policies.arguments import check_whole, true_or_false, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    Concurrent,
    Setting,
)
from simkit.policies.registry import register
from traces.sampler import Sampler
from traces.specs import render


@register
@dataclass(frozen=True)
class PEARL(Concurrent):
    """Draft the next tokens while the target checks the last ones.

    Pre-verify: while x₁…x_γ are drafted, the target checks x₁. If x₁ is rejected, its correction is
    emitted and the draft is thrown away. If it is accepted, it is emitted, and x₁…x_γ are pending.
    Post-verify: the target's pass over the pending x₁…x_γ checks x₂…x_{γ+1}, where x_{γ+1} is the
    first token drafted meanwhile. If all are accepted, they are emitted without a bonus token, and
    the γ new tokens are pending. Else the accepted part and the correction are emitted, and
    pre-verify follows.

    Drafting ends at the budget and after a drafted EOS. If nothing is drafted meanwhile, the
    target's pass checks x₂…x_γ and gives a bonus token behind them.

    Tokens drafted meanwhile continue the chain that began the draft. A drafter that makes a whole
    draft in one pass cannot continue: it makes a new pass, from the start behind the pending
    tokens.

    Tripping token: none. Score: none. State: the pending draft, per sequence. Feedback: which
    strategy comes next.
    Source: PEARL (Liu et al. 2025) sections 3.2-3.4 and appendix B, whose step 6 settles the
    indices of Algorithm 2; the ablations are those of Table 4. The authors' program differs in
    both: without pre-verify it never checks x₁, so its outputs are not the target's and its row of
    Table 4 cannot be matched; without post-verify its draft does not idle.

    Attributes:
        window: γ, 1 to max_draft. None means the ratio c = T_target(1) / T_draft(1) at the trace's
            mean context, rounded, and cut to that range and to `widest` (section 4.4.1).
        pre_verify: False means that, if nothing is pending, the draft runs alone; then the target
            checks x₁…x_{γ+1} while drafting continues.
        post_verify: False means that the target checks x₂…x_γ of a pending draft while the draft
            idles, and gives a bonus token. If both are False, it is `fixed(γ)`.
        colocated: whether both models share a device, so that their times add (appendix G).
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    window: int | None = None
    pre_verify: bool = true_or_false(True)
    post_verify: bool = true_or_false(True)
    colocated: bool = true_or_false(False)
    max_draft: int = whole_number(MAX_DRAFT, 1)

    name = "pearl"
    binds_prompts_apart = True  # once its window is known

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            check_whole(self, "window", 1)
            if self.window > self.max_draft:
                raise PolicyError(
                    f"pearl: window {self.window} is above max_draft {self.max_draft}; if the trace"
                    f" was recorded that deep, write pearl({self.window}, max_draft={self.window})"
                )

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ()

    def bind(self, setting: Setting) -> PEARL:
        """With a window.

        Raises:
            PolicyError: it follows from the times, and there is no cost.
        """
        if self.window is not None:
            return self
        most = min(self.max_draft, widest(setting))
        return replace(self, window=int(np.clip(np.round(self._ratio(setting)), 1, most)))

    @property
    def overlaps(self) -> bool:
        """Whether draft and target ever run at the same time."""
        return self.pre_verify or self.post_verify

    def remark(self, setting: Setting) -> str:
        """What keeps the window from round(c), if the trace does; what drafts in one pass take.

        Args:
            setting: with a cost.
        """
        most, said = widest(setting), []
        if self.window is None and most < min(self.max_draft, round(c := self._ratio(setting))):
            said.append(f"window {most}, as {too_wide(c, setting)}")
        if setting.layout.deepest and self.overlaps:
            said.append(
                "a draft behind tokens that wait for their verification is taken to be the one"
                " behind them verified: the states of a target, if the drafter reads them, would"
                " not be there yet"
            )
        return f"{self}: {'; '.join(said)}" if said else ""

    def _ratio(self, setting: Setting) -> float:
        try:
            return setting.costs(str(self)).cost_ratio()
        except CostError as error:
            raise PolicyError(f"{self}: {error}; give a window") from None

    def __str__(self) -> str:
        """The canonical spec: the arguments that differ from their defaults."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        defaults = {f.name: f.default for f in fields(self)}
        return render(self.name, [], {k: v for k, v in given.items() if v != defaults[k]})


def widest(setting: Setting) -> int:
    """The widest window that the trace can replay, whatever is rejected.

    A draft that runs on over two steps is one chain of 2γ tokens, so that γ is at most Γ // 2. No
    draft goes beyond the budget: where Γ reaches as far, γ may be Γ. So it may where one pass
    yields a whole draft: what is drafted meanwhile is then a draft of its own.
    """
    deepest, budget = setting.layout.trace.max_draft, setting.layout.trace.max_new_tokens
    if setting.layout.deepest:
        return deepest
    return deepest if deepest >= budget - 1 else max(1, deepest // 2)


def too_wide(c: float, setting: Setting) -> str:
    """Why a window of round(c) cannot be replayed."""
    deepest = setting.layout.trace.max_draft
    return f"c = {c:.3g}, but the trace's Γ = {deepest} lets windows go to {widest(setting)}"
