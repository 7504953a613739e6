"""Fields of a batch that PPO reads, in any framework."""

from __future__ import annotations

from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.transforms.field_checks import missing_field
from parllel.types import Tree


def paths_of_steps(samples: Samples) -> dict[str, str]:
    """Return the paths of what an update needs of each step besides the agent's inputs, by name.

    The names are `action`, `log_prob`, `value`, `advantage` and `return_`, and `weight` and `valid` if the
    samples have importance weights or invalid steps.
    """
    weighted = getattr(samples.agent, "importance_weight", None) is not None
    # Ratios and clipping are relative to this policy.
    start = "agent.learner_" if weighted else "agent.agent_info."
    paths = {
        "action": "agent.action",
        "log_prob": f"{start}log_prob",
        "value": f"{start}value",
        "advantage": "agent.advantage",
        "return_": "agent.return_",
    }
    if weighted:
        paths["weight"] = "agent.importance_weight"
    if getattr(samples.env, "valid", None) is not None:
        paths["valid"] = "env.valid"
    return paths


def needed_field(samples: Samples, path: str, who: str) -> Tree:
    """Return the field at `path`. `who` needs it, and is named in errors.

    Raises:
        ValueError: if the field does not exist or is None; lists the existing ones.
    """
    try:
        field = field_at(samples, path)
    except ValueError as error:
        raise ValueError(missing_field(who, path, error)) from None
    if field is None:
        raise ValueError(missing_field(who, path))
    return field
