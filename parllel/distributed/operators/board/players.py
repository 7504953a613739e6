"""What the players of a game do, as its card shows them.

the card's thread    notice: who does what now;  record: what was played
any other thread     as_json; died, when its card is restarted
one lock             of its own, as `notice` comes in the middle of a step, without the board's; within it no
                     other is taken
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig

# Of a step, as a card shows it.
LAST = ("action", "raw", "parsed", "understood", "executed", "illegal", "tokens", "latency_s")


class Players:
    """Follow the players of a game through its episodes.

    Args:
        config: of the game.
    """

    def __init__(self, config: MultiAgentConfig) -> None:
        self._lock = threading.Lock()
        # By operator, as seats may rotate.
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
        """Note what a player does now, as `GameEpisodes` says it; "starting" begins an episode."""
        with self._lock:
            row = self._rows[operator_id]
            row.update(player_id=seat, status=status)
            if status == "starting":
                row.update(total_reward=0.0, last=None)

    def died(self, operator_ids: Collection[str | None]) -> str:
        """Note that these players died, and that none of the others runs any more; return their names."""
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
        """What the first player of the config got in this episode."""
        with self._lock:
            total: float = next(iter(self._rows.values()))["total_reward"]
            return total

    def record(self, record: Mapping[str, Any]) -> None:
        """Note what a player played, and what it and others got for that."""
        with self._lock:
            self._rows[record["operator_id"]]["last"] = {name: record.get(name) for name in LAST}
            rewards = record.get("rewards", {record["player_id"]: record["reward"]})
            for row in self._rows.values():
                row["total_reward"] += rewards.get(row["player_id"], 0.0)

    def as_json(self) -> list[dict[str, Any]]:
        """Return a row for each player, in the order of the config."""
        with self._lock:
            return [dict(row) for row in self._rows.values()]
