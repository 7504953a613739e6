"""Returns of parllel's algorithms with tuned settings, beside those of Stable-Baselines3."""
