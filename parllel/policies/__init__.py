"""A trained policy, or any specification of one, as something that acts."""

from parllel.policies.policy import Policy

__all__ = ["Policy"]
