"""Some moves of chess between two operators; what they are played with is in the extra `operators`."""

from __future__ import annotations

from parllel.distributed.operators import Experiment, MultiAgentConfig, OperatorConfig

DUEL = MultiAgentConfig(
    "duel",
    "pettingzoo/classic/chess_v6",
    {
        "player_0": OperatorConfig("chess", "white", policy="random"),
        "player_1": OperatorConfig("baseline", "black", policy="random"),
    },
    max_steps=4,
)

if __name__ == "__main__":
    raise SystemExit(Experiment("duel", [DUEL], seeds=[0]).run("games").exit_status)
