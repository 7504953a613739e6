"""Status of a game's players, as shown on its card.

the card's thread    notice: status of a player;  record: what was played
any other thread     as_json; died, when its card is restarted
own lock             because `notice` is called in the middle of a step, without the board's lock; no other
                     lock is taken within it
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig

# Fields of a step that a card shows.
LAST = ("action", "raw", "parsed", "understood", "executed", "illegal", "tokens", "latency_s")


class Players:
    """Tracks the players of a game through its episodes.

    Args:
        config: configuration of the game.
    """

    def __init__(self, config: MultiAgentConfig) -> None:
        self._lock = threading.Lock()
        # By operator, because seats may rotate.
        self._rows: dict[str, dict[str, Any]] = {
            operator.operator_id: {
                "player_id": player,
                "operator_id": operator.operator_id,
                "operator_type": operator.operator_type,
                "policy": operator.decider,
                "status": "new",
                "total_reward": 0.0,
                "last": None,
            }
            for player, operator in config.players.items()
        }

    def notice(self, operator_id: str, seat: str, status: str) -> None:
        """Set the status of a player, as reported by `GameEpisodes`; "starting" begins an episode."""
        with self._lock:
            row = self._rows[operator_id]
            row.update(player_id=seat, status=status)
            if status == "starting":
                row.update(total_reward=0.0, last=None)

    def died(self, operator_ids: Collection[str | None]) -> str:
        """Mark these players as died and the others as not running. Returns the names of the former."""
        with self._lock:
            for row in self._rows.values():
                row["status"] = "died" if row["operator_id"] in operator_ids else "new"
            return ", ".join(
                f"player {row['player_id']!r} ({row['operator_id']})"
                for row in self._rows.values()
                if row["status"] == "died"
            )

    @property
    def first_total(self) -> float:
        """Return of the first player of the config in this episode."""
        with self._lock:
            total: float = next(iter(self._rows.values()))["total_reward"]
            return total

    def record(self, record: Mapping[str, Any]) -> None:
        """Record a player's action, and the rewards that all players received for it."""
        with self._lock:
            self._rows[record["operator_id"]]["last"] = {name: record.get(name) for name in LAST}
            rewards = record.get("rewards", {record["player_id"]: record["reward"]})
            for row in self._rows.values():
                row["total_reward"] += rewards.get(row["player_id"], 0.0)

    def as_json(self) -> list[dict[str, Any]]:
        """Return one row per player, in the order of the config."""
        with self._lock:
            return [dict(row) for row in self._rows.values()]
