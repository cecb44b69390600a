"""Times of the papers' model pairs, by name: numbers as printed, each with its table."""

from __future__ import annotations

from typing import NamedTuple


class Preset(NamedTuple):
    """Arguments of a `linear` cost, and where they are printed."""

    arguments: dict[str, float | bool]
    source: str

    @property
    def what(self) -> str:
        """The times in a few words."""
        draft_s, target_s = self.arguments["draft_s"], self.arguments["target_s"]
        decode_s = self.arguments.get("decode_s", target_s)
        parts = [
            f"draft {1e3 * draft_s:.2f} ms",
            f"verification {1e3 * target_s:.2f} ms",
            f"decoding {1e3 * decode_s:.2f} ms",
        ]
        for key, word in (("head_s", "head"), ("communication_s", "communication")):
            if key in self.arguments:
                parts.append(f"{word} {1e3 * self.arguments[key]:.2f} ms")
        return ", ".join(parts)


def _pearl(draft: float, target: float, communication_s: float | None = None) -> Preset:
    """Speeds in tokens a second, Table 10."""
    arguments = {"draft_s": 1 / draft, "target_s": 1 / target}
    source = f"PEARL Table 10: {draft} and {target} tokens/s on A100"
    if communication_s is not None:
        arguments["communication_s"] = communication_s
        source += f"; Table 15: communication {1e3 * communication_s:g} ms"
    return Preset(arguments, source)


# Speeds in tokens/s, and a speedup, from which costs follow; `analysis.papers` reads them here.
PACER_VANILLA = 18.11  # PACER Table 5, Vanilla
PACER_LLAMA = 24.20  # PACER Table 3, PACER
PACER_LLAMA_SPEEDUP = 2.66  # PACER section 4.2, over the target alone

PRESETS = {
    "pacer:deepseek-1.3b-33b": Preset(
        {
            "draft_s": 16.52e-3,
            "target_s": 67.31e-3,
            "head_s": 1.81e-3,
            "decode_s": 1 / PACER_VANILLA,
        },
        "PACER Table 14: forward passes on A800, HumanEval; Table 5, Vanilla: 18.11 tokens/s",
    ),
    # Not printed; they follow from what is (tests/test_papers_arithmetic.py does the sums):
    # 1756 s at 24.20 tokens/s are 42495 tokens, at τ = 7.46 in 5023 steps, which verified for
    # 653.14 s: 130.0 ms each. Plain speculation: 1977 s at 21.20 tokens/s, τ = 5.39, 6559 steps of
    # γ = 8 (the best of Table 16); what their verifications leave is 21.42 ms a draft pass. So
    # 1080.06 s are 50415 draft passes, a head call for every block of 4 of them (Table 10) in
    # 22.80 s: 1.81 ms each. Decoding: 24.20 tokens/s are 2.66 times its speed.
    "pacer:llama2-7b-70b": Preset(
        {
            "draft_s": 21.42e-3,
            "target_s": 130.0e-3,
            "head_s": 1.81e-3,
            "decode_s": PACER_LLAMA_SPEEDUP / PACER_LLAMA,
        },
        "derived, not printed: PACER Tables 3, 10, 15, 16 and section 4.2, HumanEval, 4 A800",
    ),
    "pearl:codellama-7b-34b": _pearl(49.34, 18.58, 0.3e-3),
    "pearl:codellama-7b-70b": _pearl(49.34, 9.20),
    "pearl:deepseek-1.3b-33b": _pearl(63.20, 17.37, 0.2e-3),
    "pearl:deepseek-6.7b-33b": _pearl(50.05, 17.37),
    "pearl:llama2-7b-70b": _pearl(49.94, 9.22, 0.2e-3),
    "pearl:llama3.1-8b-70b": _pearl(44.37, 9.00),
    # Llama-3.1-8B-Instruct and its EAGLE drafter on an H100. It counts the prefill pass, with one
    # overhead, in both latencies, so replays need first_token="prefill".
    "specdecode-bench:eagle": Preset(
        {
            "target_s": 5.88590713e-3,
            "target_per_token_s": 2.10103129e-5,
            "target_per_kv_token_s": 3.92645679e-8,
            "draft_s": 2.13526175e-3,
            "draft_per_token_s": 8.41429603e-7,
            "draft_per_kv_token_s": 2.37768493e-9,
            "draft_per_step": True,
            "overhead_s": 1.20683946e-3,
            "baseline_overhead_s": 1.20683946e-3,
            "prefill_overhead_s": 1.20683946e-3,
        },
        "linear fits of the SpecDecode-Bench simulator (arXiv:2601.11580); drafting by the step",
    ),
}


def models_of(name: str) -> tuple[str, str]:
    """The target and the draft of a preset, by the names that its own name gives them.

    `pearl:llama2-7b-70b` is of `llama2-70b` with `llama2-7b`; a pair that is not named so has one
    word for both.
    """
    words = name.partition(":")[2]
    family, *sizes = words.rsplit("-", 2)
    if len(sizes) != 2:
        return words, words
    return f"{family}-{sizes[1]}", f"{family}-{sizes[0]}"
