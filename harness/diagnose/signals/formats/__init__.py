"""Other people's per-step records (torchtitan, Megatron, DeepSpeed), found by content, read as columns."""
