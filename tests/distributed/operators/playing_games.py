"""Games between operators, for tests."""

from __future__ import annotations

import sys
import textwrap
from contextlib import contextmanager

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig, OperatorLauncher
from parllel.distributed.operators.games.game_episodes import GameEpisodes

CHESS = "pettingzoo/classic/chess_v6"
FOUR = "pettingzoo/classic/connect_four_v3"
SPREAD = "mpe2/simple_spread_v3"
RPS = "pettingzoo/classic/rps_v2"


def script(folder, name, text):
    """Write a file of policies and return its path."""
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return str(file)


ZERO = "def act(command):\n    return 0"  # column 0 is full after six moves
PLAYER = """
import json, sys, time

{act}

for line in sys.stdin:
    command = json.loads(line)
    answer = {{"type": "stopped"}}
    if command["cmd"] == "init_agent":
        answer = {{"type": "agent_initialized", "player_id": command["player_id"]}}
    elif command["cmd"] == "select_action":
        answer = {{"type": "action_selected", "action": act(command)}}
    print(json.dumps(answer), flush=True)
"""


def player(folder, name, act):
    """Return an operator that starts fast, as it needs neither parllel nor the game; it answers without ids.

    act: the source of a function of the command.
    """
    file = script(folder, f"{name}.py", PLAYER.format(act=textwrap.dedent(act)))
    return OperatorConfig("program", name, worker=[sys.executable, "-S", file])


def config_of(env_id, players, **options):
    """Return the config of a game; players: the policy, or the operator, of each."""
    operators = {
        player: OperatorConfig("baseline", f"op-{player}", policy=one)
        if isinstance(one, str)
        else one
        for player, one in players.items()
    }
    return MultiAgentConfig("game", env_id, operators, **options)


@contextmanager
def started(config, folder, step_timeout_s=30.0):
    """Yield the game and its players, which run."""
    with (
        GameEpisodes(config, step_timeout_s=step_timeout_s) as game,
        OperatorLauncher(folder) as launcher,
    ):
        yield game, launcher.launch_multiagent_operator(config)


def played(config, folder, seeds=(3,), **options):
    """Return the outcomes of each episode, and the records of all steps in each."""
    outcomes, records = [], []
    with started(config, folder, **options) as (game, handle):
        for episode, seed in enumerate(seeds):
            steps = []
            outcomes.append(game.play(handle, episode, seed, record_step=steps.append))
            records.append(steps)
    return outcomes, records
