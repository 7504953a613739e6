"""A parent of a SynchronizedProcessCage that is to be killed: says the process ids of the workers.

    synchronized_script.py METHOD STATE

STATE: "idle", or "busy": rows without an end.
"""

from __future__ import annotations

import sys
import time

from parllel.cages import SynchronizedProcessCage
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run
from parllel.testing.cages.row_reference import make_samples


def main(method: str, state: str) -> None:
    with SynchronizedProcessCage([CountingEnv] * 4, n_workers=2, start_method=method) as cage:
        samples = make_samples(CountingEnv(), 4, 4)
        cage.set_samples_buffer(samples, slice(0, 4))
        run(cage, "start_reset", 0)
        print(*cage.pids, flush=True)
        while state == "busy":
            run(cage, "start_row", 0)
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
