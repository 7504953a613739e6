"""The batch buffer that samplers fill: fields of the agent and of the environments."""

from __future__ import annotations

from typing import Any, ClassVar

from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple


def _leaves(node: NamedTuple, prefix: str) -> dict[str, Any]:
    """Return the leaves of a node that are not None, by dotted path."""
    found: dict[str, Any] = {}
    for name, value in node._asdict().items():
        if isinstance(value, NamedTuple):
            found |= _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found


class _Declared(NamedArrayTuple):
    """A node with required fields; further ones may be added by name."""

    __slots__ = ()
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, /, **fields: Any) -> None:
        missing = [name for name in self.required if name not in fields]
        if missing:
            raise TypeError(f"{type(self).__name__}: fields {missing} are missing")
        super().__init__(**fields)

    def __repr__(self) -> str:
        leaves = _leaves(self, "")
        width = max(map(len, leaves), default=0)
        lines = [f"  {path:<{width}}  {leaf!r}" for path, leaf in leaves.items()]
        return "\n".join([type(self).__name__, *lines])


class AgentSamples(_Declared):
    """Agent fields: `action`, `agent_info`, and fields computed by transforms (`advantage`, ...)."""

    __slots__ = ()
    required = ("action", "agent_info")


class EnvSamples(_Declared):
    """Environment fields; `done` is `terminated or truncated`.

    Row t holds the observation on which the action of row t is based, and the reward for that
    action. The field `env_info_default` [1, B, ...] holds the values of keys that are missing from
    an environment's info.
    """

    __slots__ = ()
    required = ("observation", "reward", "terminated", "truncated", "done", "env_info")


class Samples(_Declared):
    """A batch, with the fields of the agent in `agent` and those of the environments in `env`."""

    __slots__ = ()
    required = ("agent", "env")
