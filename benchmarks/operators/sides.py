"""The sides: each call takes a step of an environment in a worker, and a reset where an episode has ended."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from PIL import Image

from benchmarks.operators.mosaic_handle import MosaicHandle
from parllel.distributed.operators import OperatorConfig, OperatorLauncher

HERE = Path(__file__).resolve().parent
FRAMES = f"{HERE / 'frame_env.py'}:make_frames"
CARTPOLE = "CartPole-v1"
TIMER_S = 0.1  # of the window of MOSAIC
WAIT_S = 60.0


class Operator:
    """A baseline operator with a random policy.

    Args:
        env_id: of the environment.
        frame: to ask for at each step; it is made an array, as from nested lists.
    """

    def __init__(self, env_id: str = CARTPOLE, frame: Literal["png"] | None = None) -> None:
        self._folder = TemporaryDirectory()
        self._launcher = OperatorLauncher(folder=self._folder.name)
        config = OperatorConfig("baseline", "random", env_id, policy="random")
        self._handle = self._launcher.launch_operator(config, "bench", interactive=True)
        self._frame = frame
        self._seed = 0
        self._reset()

    def __call__(self) -> int:
        """Take a step."""
        self._handle.send_step(frame=self._frame)
        reply = self._handle.read_response(WAIT_S)
        if self._frame is not None:
            png = base64.b64decode(reply["render_payload"]["data"])
            check_frame(np.asarray(Image.open(io.BytesIO(png)).convert("RGB")))
        if reply["terminated"] or reply["truncated"]:
            end = self._handle.read_response(WAIT_S)
            assert end["type"] == "episode_end", end
            self._reset()
        return 1

    def _reset(self) -> None:
        self._handle.send_reset(self._seed)
        reply = self._handle.read_response(WAIT_S)
        assert reply["type"] == "ready", reply
        self._seed += 1

    def close(self) -> None:
        """End the worker."""
        self._launcher.close()
        self._folder.cleanup()


class Mosaic:
    """The same in the style of MOSAIC.

    Args:
        env_id: of the environment.
        frames: whether each step has a picture, as it has there.
        pause_s: before each look for a reply.
    """

    def __init__(
        self, env_id: str = CARTPOLE, *, frames: bool = True, pause_s: float = 0.0
    ) -> None:
        worker = str(HERE / "mosaic_worker.py")
        self._handle = MosaicHandle([worker, env_id, "frames" if frames else "none"], pause_s)
        self._frames = frames
        self._seed = 0
        self._reset()

    def __call__(self) -> int:
        """Take a step."""
        self._handle.send({"cmd": "step"})
        reply = self._handle.poll()
        if self._frames:
            check_frame(np.array(reply["render_payload"]["rgb"], np.uint8))
        if reply["terminated"] or reply["truncated"]:
            end = self._handle.poll()
            assert end["type"] == "episode_end", end
            self._reset()
        return 1

    def _reset(self) -> None:
        self._handle.send({"cmd": "reset", "seed": self._seed})
        reply = self._handle.poll()
        assert reply["type"] == "ready", reply
        self._seed += 1

    def close(self) -> None:
        """End the worker."""
        self._handle.close()


class Echo:
    """A bare echo of JSON lines with the same environment in the child; it resets that by itself."""

    def __init__(self, env_id: str = CARTPOLE) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "echo_worker.py"), env_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self()

    def __call__(self) -> int:
        """Take a step."""
        self.send()
        self.receive()
        return 1

    def send(self) -> None:
        """Ask for a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"cmd": "step"}).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> None:
        """Have the result of it."""
        assert self._process.stdout is not None
        reply = json.loads(self._process.stdout.readline())
        assert reply["type"] == "step", reply

    def close(self) -> None:
        """End the worker."""
        self._process.kill()
        self._process.communicate()


def check_frame(frame: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """Raise AssertionError unless it is a picture."""
    assert frame.ndim == 3, frame.shape
    assert frame.shape[2] == 3, frame.shape
