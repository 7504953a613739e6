"""A run on a Ray of others whose script disconnects too early; says what it met with on its way.

python ray_left.py ADDRESS
"""

from __future__ import annotations

import json
import sys

import ray
from ray_setup import publish, rollouts

from parllel.distributed.rollouts.on_ray import RaySession
from parllel.errors import WorkerDiedError

said = {}


def met(name, call):
    """Note what a call raises."""
    try:
        call()
    except (WorkerDiedError, ConnectionError) as error:
        said[name] = f"{type(error).__name__}: {error}"


def main():
    version, ray.__version__ = ray.__version__, "2.41.0"
    met("version", lambda: RaySession(sys.argv[1]))
    ray.__version__ = version
    with RaySession(sys.argv[1]), rollouts() as (buffer, statistics, workers):
        publish(workers, 1)
        said["fetched"] = len(buffer.fetch(1, 60))
        ray.shutdown()
        for name, call in {
            "check": workers.check,
            "publish": lambda: publish(workers, 2),
            "fetch": lambda: buffer.fetch(1, 1),
        }.items():
            met(name, call)
        said["steps"] = sum(status.steps for status in workers.statuses())
        said["episodes"] = len(statistics.drain())
        assert not ray.is_initialized()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
