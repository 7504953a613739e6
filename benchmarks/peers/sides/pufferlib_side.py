"""PufferLib's vectorisation, in which the row after an end only resets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pufferlib.emulation  # type: ignore[import-not-found, unused-ignore]
import pufferlib.vector  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Rows, Workload

BACKENDS = {
    "serial": pufferlib.vector.Serial,
    "multiprocessing": pufferlib.vector.Multiprocessing,
}


def make_puffer_env(factory: Any, buf: Any = None, seed: int = 0) -> Any:
    """Wrap an environment so that it writes into PufferLib's buffers."""
    return pufferlib.emulation.GymnasiumPufferEnv(env_creator=factory, buf=buf, seed=seed)


class PufferLibSide(Side):
    """Receive, store, send, as its own trainer does.

    Settings: `backend`, "serial" or "multiprocessing"; `num_workers`; `batch_size`, how many environments
    are received at once: with fewer than all, the others step meanwhile.

    Row t holds what was received for the t-th time: the observation with the reward that led to it. Each
    batch ends with actions sent, as it began, so that it is one batch's work.
    """

    libraries = ("pufferlib",)

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        B = workload.B
        options: dict[str, Any] = dict(settings)
        backend = BACKENDS[options.pop("backend")]
        if settings["backend"] == "multiprocessing":
            options["overwork"] = True
        self._envs = pufferlib.vector.make(
            partial(make_puffer_env, workload.factory()),
            backend=backend,
            num_envs=B,
            **options,
        )
        env = workload.factory()()
        self._rows = Rows(workload, env.observation_space)
        env.close()
        self._actions = workload.actions()
        self._received = np.zeros(B, int)
        self._turns = workload.T * B // int(settings.get("batch_size", B))
        self._envs.async_reset(workload.seed)
        self._warm_up()

    def _warm_up(self) -> None:
        # The first answers are those of the reset.
        for _ in range(self._turns // self._actions.shape[0]):
            *_, ids, _ = self._envs.recv()
            self._envs.send(np.ascontiguousarray(self._actions[0, ids]))

    def run(self) -> int:
        """Take T answers of every environment."""
        envs, rows, actions, received = self._envs, self._rows, self._actions, self._received
        received[:] = 0
        for _ in range(self._turns):
            observation, reward, terminated, truncated, _, ids, _ = envs.recv()
            low = int(ids[0])
            columns, t = slice(low, low + len(ids)), int(received[low])
            rows.observation[t, columns] = observation.reshape(rows.observation[t, columns].shape)
            rows.reward[t, columns] = reward
            rows.terminated[t, columns] = terminated
            rows.truncated[t, columns] = truncated
            received[columns] += 1
            envs.send(np.ascontiguousarray(actions[t, columns]))
        return rows.count_without_resets()

    def first(self) -> dict[str, float]:
        """Sample the first batch."""
        return self._rows.trace(self.run())

    def close(self) -> None:
        """End the processes."""
        self._envs.close()
