"""The players of one game, each a worker of its own, asked at the same time.

    caller   send_init_agents     --> all players
             send_select_action   --> one player; for a simultaneous move one after the other, without waiting
             poll_all_responses   <-- all that were asked: a reply, or an entry that says what went wrong

Nothing that a player does raises here, or holds up the others: it is that player's entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from msgspec import UNSET

from parllel.distributed.operators.operator_process_handle import (
    OperatorProcessHandle,
    await_replies,
)
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.errors import ClosedError, WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.seeding import Seeds
from parllel.system.processes.several import end_all
from parllel.types import Closeable


class MultiAgentOperatorHandle(Closeable):
    """The running players of a game.

    Args:
        config: of the game.
        player_handles: by the name of the player; ended by `end`.
    """

    def __init__(
        self, config: MultiAgentConfig, player_handles: Mapping[str, OperatorProcessHandle]
    ) -> None:
        self.config = config
        self.player_handles = dict(player_handles)
        self._asked: dict[str, float] = {}  # when, of those whose reply is still to come
        self._failed: dict[str, dict[str, Any]] = {}  # before they could be asked

    @property
    def is_running(self) -> bool:
        """Whether all players run."""
        return all(handle.is_running for handle in self.player_handles.values())

    def send_init_agents(self, seed: int | None = None) -> None:
        """Ask all players to begin an episode, which `agent_ready` answers.

        seed: of the episode; that of each player follows from it and from the player's name.
        """
        for player, handle in self.player_handles.items():
            own = None if seed is None else Seeds(seed).integer(f"player {player}")
            self._ask(
                player,
                lambda handle=handle, player=player, own=own: handle.send_init_agent(  # type: ignore[misc]
                    self.config.env_id,
                    player,
                    seed=own,
                    env_id=self.config.env_id,
                    env_kwargs=dict(self.config.env_kwargs),
                ),
            )

    def send_select_action(
        self,
        player_id: str,
        observation: Any,
        *,
        legal_actions: list[Any] | None = None,
        info: dict[str, Any] | None = None,
        text: str | None = None,
        action: Any = UNSET,
    ) -> None:
        """Ask one player for an action, which `action_selected` answers; all values are JSON values.

        action: what a person chose, who sits elsewhere.

        Raises:
            ValueError: if there is no such player.
            MessageError: for values that cannot be sent.
        """
        if player_id not in self.player_handles:
            raise ValueError(
                f"game {self.config.operator_id!r}: player_id: expected one of "
                f"{list(self.player_handles)}, got {player_id!r}"
            )
        handle = self.player_handles[player_id]
        self._ask(
            player_id,
            lambda: handle.send_select_action(
                player_id,
                observation,
                legal_actions=legal_actions,
                info=info,
                text=text,
                action=action,
            ),
        )

    def poll_all_responses(self, timeout: float = 5.0) -> dict[str, dict[str, Any]]:
        """Return the replies of all players that were asked, once all have come or the time is over.

        Returns:
            By player, in order: a reply with "latency_s", the seconds since it was asked for; or "message"
            and the type "timeout" (it may still answer, and is polled again), "died" or "error".
        """
        found, self._failed = self._failed, {}
        left_s = timeout
        while self._asked:
            # All in one wait: a death is noticed although another player is still thinking.
            began = monotonic()
            by_handle = {self.player_handles[player]: player for player in self._asked}
            heard = await_replies(list(by_handle), max(left_s, 0.0))
            for handle in heard:
                player = by_handle[handle]
                entry = self._read(player, handle)
                if entry is not None:
                    found[player] = {**entry, "latency_s": monotonic() - self._asked.pop(player)}
            left_s -= monotonic() - began
            if left_s <= 0:
                break
        for player, asked in self._asked.items():
            text = f"player {player!r} did not answer within {timeout:g} s"
            entry = _entry("timeout", player, f"{self._name(player)}: {text}")
            found[player] = {**entry, "latency_s": monotonic() - asked}
        return {player: found[player] for player in self.player_handles if player in found}

    def end(self, grace_s: float = 2.0) -> None:
        """End all players side by side. Idempotent."""
        # Asked first, all of them: each has the whole grace to leave.
        for handle in self.player_handles.values():
            handle.ask_to_stop()
        end_all([handle.process for handle in self.player_handles.values()], grace_s)

    def close(self) -> None:
        """End all players. Idempotent."""
        self.end()

    def _ask(self, player: str, send: Callable[[], None]) -> None:
        # A new command takes the place of the one before, as in the handle.
        self._failed.pop(player, None)
        self._asked.pop(player, None)
        began = monotonic()
        try:
            send()
        except (WorkerError, ClosedError) as error:
            self._failed[player] = {**_failure(player, error), "latency_s": monotonic() - began}
        else:
            self._asked[player] = began

    def _read(self, player: str, handle: OperatorProcessHandle) -> dict[str, Any] | None:
        try:
            reply = handle.try_read_response(0.0)
        except (WorkerError, ClosedError) as error:
            return _failure(player, error)
        if reply is None:
            return None
        # Workers that serve one player may leave it out.
        named = reply.setdefault("player_id", player)
        if named != player:
            text = f"answered for player {named!r}, and was asked for {player!r}"
            return _entry("error", player, f"{self._name(player)}: {text}")
        return reply

    def _name(self, player: str) -> str:
        return self.player_handles[player].process.name


def _failure(player: str, error: Exception) -> dict[str, Any]:
    kind = "error"
    if isinstance(error, (WorkerDiedError, ClosedError)):
        kind = "died"
    elif isinstance(error, WorkerTimeoutError):
        kind = "timeout"
    return _entry(kind, player, str(error))


def _entry(kind: str, player: str, message: str) -> dict[str, Any]:
    return {"type": kind, "player_id": player, "message": message}
