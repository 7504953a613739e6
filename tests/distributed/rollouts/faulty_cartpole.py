"""A CartPole that fails; apart from the training script, so that its process need not import PyTorch."""

from __future__ import annotations

import os
import signal
import time

import gymnasium as gym


class FaultyCartPole(gym.Wrapper):
    """Fail in some ways; the file gets a line with the number of each process."""

    def __init__(self, path, fault="none", made="none", again="none"):
        super().__init__(gym.make("CartPole-v1"))
        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        self.fault = fault
        self.steps = 0
        fail(made)
        if len(path.read_text().split()) > 1:
            fail(again)

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            fail(self.fault)
        return super().step(action)


def fail(fault):
    if fault == "raise":
        raise ArithmeticError("the simulator failed")
    if fault == "exit":
        os._exit(3)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(3600)
