"""Environments that fail in the ways of real environments."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.testing.dummy_envs import CountingEnv
from parllel.types import Tree

PHASES = ("constructor", "reset", "step", "attribute", "close")


class DummyFaultError(Exception):
    """The error of a `FaultyEnv`; its constructor takes two arguments, which makes it hard to pickle."""

    def __init__(self, phase: str, number: int) -> None:
        super().__init__(phase, number)
        self.phase = phase
        self.number = number

    def __str__(self) -> str:
        return f"{self.phase} number {self.number} failed as it was told to"


class UnpicklableFaultError(Exception):
    """An error that cannot be pickled, as it holds a lock."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def _raise_unpicklable() -> None:
    raise UnpicklableFaultError


def _raise_attribute_error() -> None:
    raise AttributeError("no simulator here")


def _raise_broken_pipe() -> None:
    raise BrokenPipeError("the simulator hung up")


def _segfault() -> None:
    faulthandler.disable()  # which would fill the terminal
    with contextlib.suppress(ValueError):  # not in the main thread
        # A fork has the handlers of libraries that its parent imported: pygame's aborts instead.
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


def _hang() -> None:
    time.sleep(3600)


def _hang_in_c() -> None:
    # PyDLL, since CDLL would release the lock: no thread and no signal handler of Python can run.
    ctypes.PyDLL(None).sleep(3600)  # keeps the interpreter lock


# The ways to fail; all but the first few end the process or keep it from ever answering.
FAULTS: Mapping[str, Callable[[], Any]] = {
    # It cannot be sent to the main process, which must report it all the same.
    "unpicklable": _raise_unpicklable,
    # `hasattr` and `getattr` with a default take it for a missing attribute.
    "attribute_error": _raise_attribute_error,
    # Easily taken for the pipe between worker and main process.
    "broken_pipe": _raise_broken_pipe,
    # No Exception, so most handlers let it pass.
    "system_exit": lambda: sys.exit(3),
    # Without any clean-up, as after an abort in a native library.
    "exit": lambda: os._exit(3),
    "segfault": _segfault,
    # What the kernel does to a process when memory runs out.
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    # Alive by every sign, but it never answers, and not even SIGTERM reaches it.
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": _hang,
    "hang_in_c": _hang_in_c,
}


class FaultyEnv(CountingEnv):
    """A `CountingEnv` that fails in a given way.

    Args:
        phase: when, one of `PHASES`; "attribute" is reading `cage.fragile`.
        fault: what: "raise" (a DummyFaultError) or a key of `FAULTS`.
        number: in which call of that phase, counted from 1.
        options: those of `CountingEnv`.

    Raises:
        ValueError: for an unknown phase or fault.
    """

    def __init__(
        self, phase: str, fault: str = "raise", *, number: int = 1, **options: Any
    ) -> None:
        super().__init__(**options)
        if phase not in PHASES:
            raise ValueError(f"phase: expected one of {PHASES}, got {phase!r}")
        if fault != "raise" and fault not in FAULTS:
            raise ValueError(f"fault: expected 'raise' or one of {list(FAULTS)}, got {fault!r}")
        self.phase, self.fault, self.number = phase, fault, number
        self._calls = dict.fromkeys(PHASES, 0)
        self._enter("constructor")

    def _enter(self, phase: str) -> None:
        self._calls[phase] += 1
        if phase == self.phase and self._calls[phase] == self.number:
            if self.fault == "raise":
                raise DummyFaultError(phase, self.number)
            FAULTS[self.fault]()

    def reset(self, **options: Any) -> tuple[Tree, dict[str, Any]]:
        """Reset, or fail."""
        self._enter("reset")
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step, or fail."""
        self._enter("step")
        return super().step(action)

    @property
    def fragile(self) -> int:
        """Return 1, or fail."""
        self._enter("attribute")
        return 1

    def close(self) -> None:
        """Close, or fail."""
        self._enter("close")
        super().close()


# Malformed observations, for layouts of arrays.
MALFORMED_OBSERVATIONS: Mapping[str, Callable[[], Any]] = {
    "wrong shape": lambda: np.zeros(7, np.float32),
    # From an environment that is a vector of one.
    "too many dimensions": lambda: np.zeros((1, 3), np.float32),
    "scalar": lambda: 1.0,
    "NaN": lambda: np.array([1.0, np.nan, 0.0], np.float32),
    "infinity": lambda: np.array([1.0, -np.inf, 0.0], np.float32),
    # Finite as the environment returns it, infinite as the buffer stores it.
    "beyond float32": lambda: np.array([1.0, 1e39, 0.0]),
    "None": lambda: None,
    "string": lambda: "three numbers",
    "strings": lambda: np.array(["a", "b", "c"]),
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "object": lambda: np.array([None, 1.0, 2.0], object),
    # Stored in a float array it would lose its imaginary part, with nothing but a warning.
    "complex": lambda: np.zeros(3, np.complex64),
    "dict": lambda: {"observation": np.zeros(3, np.float32)},
}
MALFORMED_REWARDS: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "string": lambda: "1.0",
    "NaN": lambda: float("nan"),
    "infinity": lambda: -float("inf"),
    "beyond float32": lambda: 1e39,
    "array": lambda: np.zeros(1),
    "complex": lambda: 1j,
}
MALFORMED_FLAGS: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "int": lambda: 1,
    # A string that is true.
    "string": lambda: "False",
    "array": lambda: np.zeros(1, bool),
}


class MalformedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A `CountingEnv` that returns one malformed part.

    Args:
        part: "observation", "reward", "terminated", "truncated", "info", "result" (of a step, whole),
            "reset observation" or "reset result".
        value: makes what takes its place.
        number: from which step, or in which reset, counted from 1.
        options: those of `CountingEnv`.
    """

    STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")

    def __init__(
        self, part: str, value: Callable[[], Any], *, number: int = 1, **options: Any
    ) -> None:
        known = (*self.STEP_PARTS, "result", "reset observation", "reset result")
        if part not in known:
            raise ValueError(f"part: expected one of {known}, got {part!r}")
        super().__init__(CountingEnv(**options))
        self.part, self.value, self.number = part, value, number
        self._resets = self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, and replace the part."""
        self._resets += 1
        observation, info = self.env.reset(seed=seed, options=options)
        if self.part.startswith("reset ") and self._resets == self.number:
            if self.part == "reset result":
                return self.value()  # type: ignore[no-any-return]
            observation = self.value()
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and replace the part."""
        self._steps += 1
        result: Any = self.env.step(action)
        if self._steps < self.number or self.part.startswith("reset "):
            return result  # type: ignore[no-any-return]
        if self.part == "result":
            return self.value()  # type: ignore[no-any-return]
        parts = dict(zip(self.STEP_PARTS, result, strict=True))
        parts[self.part] = self.value()
        return tuple(parts.values())  # type: ignore[return-value]


class CrowdedEnv(CountingEnv):
    """Starts a thread and processes, and writes to stdout; see `pids`.

    Args:
        fork: also fork a process, which keeps all descriptors of this one open.
        options: those of `CountingEnv`.
    """

    def __init__(self, *, fork: bool = False, **options: Any) -> None:
        super().__init__(**options)
        print("an environment that talks", flush=True)
        self._stop = threading.Event()
        # The interpreter would wait for it at its exit.
        threading.Thread(target=self._stop.wait, daemon=False).start()
        command = [sys.executable, "-c", "import time; time.sleep(3600)"]
        self._processes = [subprocess.Popen(command)]
        self.pids = [process.pid for process in self._processes]
        if fork:
            # The worker's pipes stay open in it: no end of file shows the main process that the worker died.
            pid = os.fork()
            if pid == 0:
                time.sleep(3600)
                os._exit(0)
            self.pids.append(pid)

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Print a line, and step."""
        print("step", action, flush=True)
        # As libraries in C print: replacing `sys.stdout` does not catch it.
        os.write(1, b"past Python\n")
        return super().step(action)
