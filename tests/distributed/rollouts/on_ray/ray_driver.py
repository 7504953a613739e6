"""A run on Ray that says which processes it has, and then waits to be killed.

python ray_driver.py [ADDRESS]
"""

from __future__ import annotations

import json
import sys

from ray_setup import actor_pid, env_pids, publish, rollouts, wait_until

from parllel.distributed.rollouts.on_ray import RaySession


def main():
    with (
        RaySession(*sys.argv[1:], **({} if sys.argv[1:] else {"num_cpus": 1})),
        rollouts(processes=True) as (buffer, _, workers),
    ):
        publish(workers, 1)
        wait_until(buffer.prepared, "fragments")
        (status,) = workers.ask_statuses()
        print(json.dumps([actor_pid(status), *env_pids(status)]), flush=True)
        while True:
            buffer.fetch(1, 1.0)
            workers.check()


if __name__ == "__main__":
    main()
