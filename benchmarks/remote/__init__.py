"""Agents behind URLs: round trips compared with kaggle-environments, batches, sessions, cost of guards."""
