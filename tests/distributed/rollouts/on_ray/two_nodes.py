"""A run on a cluster of two nodes, of which the one with the worker is lost; says what became of it."""

from __future__ import annotations

import json
import sys

import ray
from ray.cluster_utils import Cluster
from ray_setup import (
    actor_pid,
    check_ledgers,
    env_pids,
    gone,
    publish,
    quiet_statuses,
    rollouts,
    wait_until,
)

from parllel.distributed.rollouts.on_ray import RaySession, WorkerOptions
from parllel.testing.dummy_envs import CountingEnv

CAPACITY = 20
ROLLOUTS = {
    "capacity": CAPACITY,
    # Contents are in the object store of the node that is lost.
    "large_bytes": int(sys.argv[1]),
    # Otherwise the worker could be on the head, which is not lost.
    "options": WorkerOptions(cpus=1.0, resources={"simulator": 0.5}),
    "make_env": CountingEnv,
    "processes": True,
}


def main():
    node = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 2})
    try:
        lost = cluster.add_node(**node, num_cpus=1, resources={"simulator": 1})
        with RaySession(cluster.address), rollouts(**ROLLOUTS) as (buffer, _, workers):
            publish(workers, 1)
            (before,) = workers.ask_statuses()
            pids = [actor_pid(before), *env_pids(before)]
            wait_until(lambda: buffer.prepared() == CAPACITY, "a full buffer")
            found = buffer.fetch(CAPACITY, 5)
            cluster.remove_node(lost)
            wait_until(lambda: all(map(gone, pids)), "the end of the worker's processes")
            cluster.add_node(**node, num_cpus=1, resources={"simulator": 1})
            wait_until(lambda: buffer.added().get("worker 0, start 2"), "fragments of another")
            found += buffer.fetch(buffer.prepared(), 5)
            wait_until(lambda: buffer.prepared() == CAPACITY, "a full buffer")
            died, again = quiet_statuses(workers)
            assert died.phase == "died", died
            assert again.where.partition(",")[0] != before.where.partition(",")[0]
            total = check_ledgers([died, again], buffer)
            keys = {fragment.key for fragment in found}
            assert len(keys) == len(found) == buffer.counts()["accepted"]
            print(json.dumps({"reason": died.reason, **total}), flush=True)
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
