"""Prompt lookup of Hugging Face as an outside judge: same passes, drafts and accepted tokens.

Source: transformers 5, `PromptLookupCandidateGenerator` in `generation/candidate_generator.py` and
`_assisted_decoding` in `generation/utils.py`.
"""

import pytest
import torch
from models import tiny_prompts
from test_exactness import EOS_IDS, reference_pair, sharp_pair

from benchmarks.prompt_lookup import RULES, generated, plain, predicted

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=["tiny", "reference"])
def setting(request):
    if request.param == "tiny":  # its few tokens come again and again, EOS ones in drafts too
        pair, eos = sharp_pair("llama-gqa", dtype=torch.float32), EOS_IDS
        prompts, max_new_tokens = tiny_prompts(6, seed=5), 20
    else:
        pair, prompts = reference_pair("float32", 2)
        eos, max_new_tokens = pair.eos_token_ids, 32
    outputs = [plain(pair.target, prompt, max_new_tokens, eos) for prompt in prompts]
    return pair.target, prompts, outputs, (max_new_tokens, eos)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_steps(setting, rule):
    model, prompts, outputs, rest = setting
    drafted = 0
    for prompt, output in zip(prompts, outputs, strict=True):
        ours = predicted(prompt, output, rule, *rest)
        assert generated(model, prompt, rule, *rest) == ours
        drafted += sum(step[1] for step in ours.steps)
    assert drafted > 0
