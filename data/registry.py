"""LLaMA-Factory's dataset_info.json, read as it is."""
