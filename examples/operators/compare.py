"""Compare a trained run, the same behind a URL, random and no-op actions, on CartPole and in a MiniGrid room.

parllel operators run examples/operators/compare.py
parllel operators run examples/operators/compare.py --set cartpole=runs/my-run --set n_seeds=10
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parllel.distributed.operators import Experiment, OperatorConfig
from parllel.system.processes import Program

HERE = Path(__file__).resolve().parent
CARTPOLE = "CartPole-v1"
ROOM = f"{HERE / 'room.py'}:make_room"
START_S = 120.0  # a server loads PyTorch


@contextmanager
def experiment(
    cartpole: str = "", minigrid: str = "", n_seeds: int = 50, port: int = 8091
) -> Iterator[Experiment]:
    """Yield the experiment, with the server running meanwhile.

    cartpole, minigrid: run folders. Default: `runs/cartpole/ppo-seed0` and `runs/minigrid/ppo-seed0`, which
        are trained first if they do not exist.
    port: of the server. 0 chooses a free one, which makes the experiment's records differ.
    """
    cartpole = cartpole or trained(HERE.parent / "cartpole" / "train_ppo.py", "runs/cartpole")
    minigrid = minigrid or trained(HERE / "train_minigrid.py", "runs/minigrid")
    with served(cartpole, port) as url:
        operators = [
            OperatorConfig("rl", "trained", CARTPOLE, policy=cartpole),
            OperatorConfig("policy", "served", CARTPOLE, policy=url),
            OperatorConfig("baseline", "random", CARTPOLE, policy="random"),
            OperatorConfig("baseline", "noop", CARTPOLE, policy="noop"),
            OperatorConfig("rl", "room-trained", ROOM, policy=minigrid),
            OperatorConfig("baseline", "room-random", ROOM, policy="random"),
            OperatorConfig("baseline", "room-noop", ROOM, policy="noop"),
        ]
        yield Experiment(
            "compare",
            operators,
            seeds=range(n_seeds),
            start_timeout_s=START_S,
            success={CARTPOLE: 475.0, ROOM: 0.1},  # in the room any reward is for the goal
        )


def trained(script: Path, base: str) -> str:
    """Return the folder of a run, after training it if it does not exist."""
    folder = Path(base) / "ppo-seed0"
    if not folder.exists():
        subprocess.run([sys.executable, str(script), "--runs", base], check=True)
    return str(folder)


@contextmanager
def served(run: str, port: int) -> Iterator[str]:
    """Serve the policy of a run, and yield the URL."""
    command = [sys.executable, "-m", "parllel", "remote", "serve", "--port", str(port)]
    command += ["--environment", f"gymnasium/{CARTPOLE}", "--agent", run]
    patience = json.dumps({"agentTimeout": START_S, "actTimeout": START_S})
    with Program([*command, "--configuration", patience], name="server") as server:
        # "serving on http://..."
        yield server.read_line(timeout_s=START_S).decode().split()[-1]
