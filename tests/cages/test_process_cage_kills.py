from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from functools import partial
from typing import Any

from cage_makers import bind, forked

from parllel.errors import WorkerDiedError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import WITHIN_S, wait_until_gone

KILLS = 50
T = 5


def work(cage: Any) -> None:
    """Use all of a cage, without an end."""
    bind(cage, CountingEnv(layout="dict"), T)
    while True:
        cage.start_reset(0)
        cage.finish_row()
        for t in range(T):
            cage.start_row(t) if t % 2 else cage.start_random_row(t)
            cage.finish_row()
        cage.collect_completed_trajs()
        cage.collect_final_observations()
        assert cage.gravity == 9.8
        cage.step_async(1)
        cage.await_step()


def test_a_worker_killed_at_any_moment_gives_a_clear_error() -> None:
    moments = random.Random(0)
    texts = []
    for i in range(KILLS):
        killed: list[float] = []
        cage = forked(partial(CountingEnv, (1, 3), layout="dict"), index=i, seed=i)
        pid = cage.pid

        def kill(pid: int = pid, killed: list[float] = killed) -> None:
            os.kill(pid, signal.SIGKILL)
            killed.append(time.monotonic())  # not before: this thread may have to wait its turn

        timer = threading.Timer(moments.uniform(0.0, 0.04), kill)
        timer.start()
        with cage:
            try:
                work(cage)
            except WorkerDiedError as error:
                noticed = time.monotonic()
                texts.append(str(error))
        timer.join()
        assert noticed - killed[0] < WITHIN_S
        assert wait_until_gone(pid)
    clear = re.compile(
        r"cage \d+( \(CountingEnv\))?: process \d+ was killed by SIGKILL "
        r"(during|before|while it was made)"
    )
    assert len(texts) == KILLS
    assert [text for text in texts if not clear.match(text)] == []
    # The moments were many: during rows and resets, in calls, and before the first.
    assert len({re.sub(r"[\d()]", "", text.split("SIGKILL")[1]) for text in texts}) >= 3
