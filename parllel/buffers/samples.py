"""The tree that samplers fill: what the agent decided and what the environments answered."""

from __future__ import annotations

from typing import Any, ClassVar

from parllel.buffers.named_tuple import NamedArrayTuple


class _Declared(NamedArrayTuple):
    """A node with fields that must be given; further ones may be added by name."""

    __slots__ = ()
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, /, **fields: Any) -> None:
        missing = [name for name in self.required if name not in fields]
        if missing:
            raise TypeError(f"{type(self).__name__}: fields {missing} are missing")
        super().__init__(**fields)


class AgentSamples(_Declared):
    """What the agent made: `action`, `agent_info`, and what transforms derive (`advantage`, ...)."""

    __slots__ = ()
    required = ("action", "agent_info")


class EnvSamples(_Declared):
    """What the environments answered; `done` is `terminated or truncated`.

    Row t holds the observation that the action of row t answers, and the reward that followed it. Where
    there is an `env_info_default` [1, B, ...], it stands for keys that an environment's info does not have.
    """

    __slots__ = ()
    required = ("observation", "reward", "terminated", "truncated", "done", "env_info")


class Samples(_Declared):
    """A batch: `agent` and `env`."""

    __slots__ = ()
    required = ("agent", "env")
