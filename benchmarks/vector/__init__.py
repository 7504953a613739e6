"""Vector environments beside those of gymnasium and Stable-Baselines3, and PPO on top of them."""
