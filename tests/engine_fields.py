"""What each engine takes, as it was looked up: the judge of what `simkit.engines` writes.

Where, and of which version, each file of `simkit/engines` says.
"""

FIELDS = {
    "vllm": """
        enforce_eager num_speculative_tokens model method draft_tensor_parallel_size
        tensor_parallel_size quantization moe_backend attention_backend kv_cache_dtype max_model_len
        revision code_revision index_share_for_mtp_iteration disable_padded_drafter_batch
        disable_eagle_block_drop use_local_argmax_reduction use_heterogeneous_vocab
        prompt_lookup_max prompt_lookup_min parallel_drafting num_speculative_tokens_per_batch_size
        suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests
        suffix_decoding_max_spec_factor suffix_decoding_min_token_prob draft_load_config
        rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length
        enable_adaptive_verification draft_sample_method dspark_draft_topk""",
    "sglang": """
        speculative_algorithm speculative_draft_model_path speculative_draft_model_revision
        speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens
        speculative_accept_threshold_single speculative_accept_threshold_acc speculative_token_map
        speculative_attention_mode speculative_adaptive speculative_adaptive_config
        speculative_dflash_block_size speculative_ngram_min_bfs_breadth
        speculative_ngram_max_bfs_breadth speculative_ngram_match_type
        speculative_ngram_max_trie_depth speculative_ngram_capacity""",
    "tensorrt-llm": """
        decoding_type max_draft_len max_total_draft_tokens speculative_model max_concurrency
        draft_len_schedule load_format acceptance_rate_window_size acceptance_rate_threshold
        use_rejection_sampling allow_advanced_sampling max_matching_ngram_size is_keep_all
        is_use_oldest is_public_pool mask_token_id""",
    "llama.cpp": """
        spec_type spec_draft_model spec_draft_n_max spec_draft_n_min spec_draft_p_min
        spec_draft_p_split spec_draft_ngl spec_draft_device spec_ngram_mod_n_max
        spec_ngram_mod_n_min spec_ngram_mod_n_match spec_ngram_simple_size_n
        spec_ngram_simple_size_m spec_ngram_simple_min_hits spec_synth_rates""",
    "openvino": """
        num_assistant_tokens assistant_confidence_threshold max_ngram_size logprobs""",
    "transformers": """
        num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
        prompt_lookup_num_tokens max_matching_ngram_size""",
}
FIELDS = {engine: frozenset(names.split()) for engine, names in FIELDS.items()}

WORDS = {
    "method": "draft_model eagle eagle3 medusa mtp ngram suffix dflash dspark",
    "draft_sample_method": "greedy probabilistic",
    "speculative_algorithm": "EAGLE EAGLE3 NEXTN STANDALONE NGRAM DFLASH",
    "decoding_type": "Draft_Target Eagle3 NGram PARD MTP",
    "spec_type": "none draft-simple draft-eagle3 draft-mtp draft-dflash draft-dspark ngram-simple"
    " ngram-map-k ngram-map-k4v ngram-mod ngram-cache",
    "num_assistant_tokens_schedule": "heuristic heuristic_transient constant",
}
"""The words that a field may have; no two engines have a field of the same name."""

WITH_MODEL = {"draft_model", "eagle", "eagle3", "Draft_Target"}
SLOT = {"candidate_steps", "up_hysteresis", "down_hysteresis", "ceiling_coeff"}
SHARED = {"ema_alpha", "update_interval", "warmup_batches"}


def check(engine, given):
    """Fields and words that the engine has, and no two of which one refuses the other."""
    assert given.keys() <= FIELDS[engine]
    for name in given.keys() & WORDS.keys():
        assert given[name] in WORDS[name].split()
    if {given.get("method"), given.get("decoding_type")} & WITH_MODEL:
        assert given.get("model") or given.get("speculative_model")
    if engine == "openvino":  # a threshold and a length exclude each other
        assert not given.keys() >= {"num_assistant_tokens", "assistant_confidence_threshold"}


def check_adaptive(config):
    """An adaptive configuration that SGLang takes, all of whose keys it reads."""
    slots = {key: value for key, value in config.items() if key.isdigit()}
    assert slots and config.keys() - slots.keys() <= SHARED
    for slot in slots.values():
        assert slot["candidate_steps"] and all(type(k) is int for k in slot["candidate_steps"])
        assert slot.keys() <= SLOT
