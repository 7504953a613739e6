"""Whole trainings of PPO, ours and others': steps per second and learning curves."""
