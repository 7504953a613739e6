"""A person who chooses the actions of one environment, and does not sit at the terminal of its worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle
from parllel.distributed.operators.protocol.choosing import Asked, Choose, offered_actions
from parllel.distributed.operators.protocol.operator_config import OperatorConfig

# The worker alone knows the space of actions that are typed. It says so before anything is stepped.
_REFUSED = "step: action: "


class AskedPerson:
    """Ask a person for each step.

    Args:
        config: of the operator, whose settings may have "keys" and "action_names".
        choose: asks.
        handle: of the person's worker, whose death ends the wait.
    """

    def __init__(
        self, config: OperatorConfig, choose: Choose, handle: OperatorProcessHandle
    ) -> None:
        self._choose, self._handle, self._keys = choose, handle, config.settings.get("keys")
        self._names = config.settings.get("action_names")
        self._question = Asked(None, None, None)
        self._said: str | None = None

    def see_ready(self, reply: Mapping[str, Any]) -> None:
        """Learn from `ready` what there is to choose from."""
        space = reply.get("action_space")
        names = self._names or reply.get("action_names")
        actions = offered_actions(space, names=names, keys=self._keys)
        text = space.get("text") if isinstance(space, Mapping) else None
        self._question = Asked(None, reply.get("text"), actions, text)

    def see_step(self, reply: dict[str, Any]) -> None:
        """Learn from `step` what there is to read; note in it what the chosen action is called."""
        if self._said is not None:
            reply.setdefault("raw", self._said)
        self._question = self._question._replace(text=reply.get("text"))

    def choice(self, message: str | None = None) -> Any:
        """Ask, and return the action as JSON values.

        message: why the worker refused the choice before.

        Raises:
            WorkerDiedError: if the worker ends meanwhile.
            Exception: what `choose` raises, as if the episode is given up.
        """
        (action,) = self._choose([self._question._replace(message=message)], self._look)
        self._said = self._question.name_of(action)
        return action

    @staticmethod
    def is_refusal(message: str) -> bool:
        """Return whether an error of a step says that the choice was none, so that another can be made."""
        return message.startswith(_REFUSED)

    def _look(self) -> None:
        if not self._handle.is_running:
            self._handle.try_read_response(0.0)
