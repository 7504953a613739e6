"""Agents behind URLs: round trips beside kaggle-environments, batches, many sessions, what guards cost."""
