"""Choice of the worker that prompts a language model, by environment."""

from __future__ import annotations

# Settings of each worker besides the common ones.
OWN_SETTINGS: dict[str, tuple[str, ...]] = {
    "balrog_worker": (),
    "chess_worker": ("turns",),
    "operators_worker": ("action_names",),
}
_TEXT_WORLDS = ("babyai", "minigrid")


def llm_worker(env_id: str | None) -> str:
    """Return the module of `parllel.distributed.operators.workers` for an environment."""
    name = (env_id or "").lower()
    if "chess" in name:
        return "chess_worker"
    if any(world in name for world in _TEXT_WORLDS):
        return "balrog_worker"
    return "operators_worker"
