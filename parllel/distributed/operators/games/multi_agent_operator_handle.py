"""Handle of all players of one game. Each is a separate worker; simultaneous moves are asked concurrently.

    caller   send_init_agents     --> all players
             send_select_action   --> one player; does not wait, so a simultaneous move is one call per player
             poll_all_responses   <-- every player asked: a reply, or an entry that says what went wrong

A player's failure neither raises nor delays the others: it becomes that player's entry.
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
    """Manages the running player processes of a game.

    Args:
        config: configuration of the game.
        player_handles: handles of the players' workers, keyed by player name. `end` ends them.
    """

    def __init__(
        self, config: MultiAgentConfig, player_handles: Mapping[str, OperatorProcessHandle]
    ) -> None:
        self.config = config
        self.player_handles = dict(player_handles)  # in the order in which replies are returned
        self._asked: dict[str, float] = {}  # when each open question was sent
        self._failed: dict[
            str, dict[str, Any]
        ] = {}  # entries of players that could not even be asked

    @property
    def is_running(self) -> bool:
        """Whether all players are running."""
        return all(handle.is_running for handle in self.player_handles.values())

    def send_init_agents(self, seed: int | None = None) -> None:
        """Ask all players to start an episode; each replies `agent_ready`.

        seed: seed of the episode. Each player's seed is derived from it and the player's name.
        """
        for player, handle in self.player_handles.items():
            # By name, not by worker: a seat gets the same seed whichever operator sits in it.
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
        """Ask one player for an action; it replies `action_selected`. All values are JSON values.

        action: the choice of a person who was asked outside the worker.

        Raises:
            ValueError: if there is no such player.
            MessageError: for values that JSON cannot hold.
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
        """Wait for the replies of all players that were asked, for at most `timeout` seconds.

        Returns:
            A dict keyed by player, in order. A reply contains "latency_s", the seconds since the
            question was sent. A player without a reply has a dict with "message" and the type
            "timeout", "died" or "error". After "timeout" the player may still answer and is polled
            again.
        """
        # Players that could not be asked are reported once, and not waited for.
        found, self._failed = self._failed, {}
        # One budget for all players together; what one of them takes is time for the others too.
        left_s = timeout
        while self._asked:
            # One wait for all: a player's death is noticed while another is still thinking.
            began = monotonic()
            # Only open questions: another line of a player that has answered is not a reply to anything.
            by_handle = {self.player_handles[player]: player for player in self._asked}
            ready = await_replies(list(by_handle), max(left_s, 0.0))
            for handle in ready:
                player = by_handle[handle]
                entry = self._read(player, handle)
                # None: only a late reply to an earlier command had arrived. The question stays open.
                if entry is not None:
                    found[player] = {**entry, "latency_s": monotonic() - self._asked.pop(player)}
            left_s -= monotonic() - began
            if left_s <= 0:
                break
        # They stay in `_asked`: a late reply is delivered by the next poll, unless they are asked anew.
        for player, asked in self._asked.items():
            text = f"player {player!r} did not answer within {timeout:g} s"
            entry = _entry("timeout", player, f"{self._name(player)}: {text}")
            found[player] = {**entry, "latency_s": monotonic() - asked}
        # In the order of the game, whoever answered first: records do not depend on timing.
        return {player: found[player] for player in self.player_handles if player in found}

    def end(self, grace_s: float = 2.0) -> None:
        """End all players in parallel. Idempotent."""
        # Ask all of them first, so that each has the whole grace period to exit.
        for handle in self.player_handles.values():
            handle.ask_to_stop()
        end_all([handle.process for handle in self.player_handles.values()], grace_s)

    def close(self) -> None:
        """End all players. Idempotent."""
        self.end()

    def _ask(self, player: str, send: Callable[[], None]) -> None:
        # A new command replaces the previous one, as in OperatorProcessHandle.
        self._failed.pop(player, None)
        self._asked.pop(player, None)
        began = monotonic()  # before the write, whose time is part of the latency
        try:
            send()
        except (WorkerError, ClosedError) as error:
            # Not raised: other players have been asked already, and their replies are still to be read.
            self._failed[player] = {**_failure(player, error), "latency_s": monotonic() - began}
        else:
            # Only once it was sent: a question that never arrived would be awaited in vain.
            self._asked[player] = began

    def _read(self, player: str, handle: OperatorProcessHandle) -> dict[str, Any] | None:
        try:
            reply = handle.try_read_response(0.0)
        except (WorkerError, ClosedError) as error:
            return _failure(player, error)
        if reply is None:
            return None
        # Workers that serve a single player may leave out its id.
        named = reply.setdefault("player_id", player)
        # The worker confuses its games; this action must not be played for the player that was asked.
        if named != player:
            text = f"answered for player {named!r}, and was asked for {player!r}"
            return _entry("error", player, f"{self._name(player)}: {text}")
        return reply

    def _name(self, player: str) -> str:
        return self.player_handles[player].process.name


def _failure(player: str, error: Exception) -> dict[str, Any]:
    kind = "error"
    # ClosedError: ended on this side meanwhile, which is the same for the game.
    if isinstance(error, (WorkerDiedError, ClosedError)):
        kind = "died"
    elif isinstance(error, WorkerTimeoutError):
        kind = "timeout"
    return _entry(kind, player, str(error))


def _entry(kind: str, player: str, message: str) -> dict[str, Any]:
    return {"type": kind, "player_id": player, "message": message}
