"""Whole trainings of PPO on CartPole, ours and others': steps per second and learning curves."""
