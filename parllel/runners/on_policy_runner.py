"""On-policy learning: sample a batch, learn from it, forget it."""

from __future__ import annotations

from parllel.runners.runner import Runner


class OnPolicyRunner(Runner):
    """Learn from each batch once, as PPO does, and sample the next with the new weights.

    Everything else is as `Runner` has it, arguments included.
    """
