"""A run on a cluster of two nodes, of which the one with the worker is lost; says what became of it.

Before that, without fragments: where workers are placed.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray_setup import (
    actor_pid,
    build_ready,
    check_ledgers,
    env_pids,
    gone,
    publish,
    quiet_statuses,
    rollouts,
    wait_until,
)

from parllel.distributed.rollouts.on_ray import (
    RayEpisodeStatistics,
    RayReplayBuffer,
    RayRollouts,
    RaySession,
    WorkerOptions,
)
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


def check_places():
    """Check where workers are, on a head with two CPUs and another node with one, which has a simulator."""
    with RayReplayBuffer(8) as buffer, RayEpisodeStatistics() as statistics:

        def nodes(n_workers, **options):
            shared = (buffer, statistics)
            with RayRollouts(build_ready, n_workers, *shared, WorkerOptions(**options)) as workers:
                wait_until(lambda: all(s.where for s in workers.ask_statuses()), "workers")
                return [s.where.partition(",")[0] for s in workers.ask_statuses()]

        assert len(set(nodes(2, cpus=0.5, placement="strict_spread"))) == 2
        # The one that Ray would not have chosen.
        group = placement_group([{"CPU": 1, "simulator": 0.1}])
        (node,) = set(nodes(2, cpus=0.5, placement=group))
        found = said_by(nodes, 3, cpus=0.5, placement=group)
        assert "expected at most 2, for 0.5 CPU and 0 GPU each in the placement group" in found
        # The only CPU of that node is in the group.
        found = said_by(nodes, 2, cpus=1, placement="strict_spread", start_timeout_s=1.0)
        assert found.startswith(
            "WorkerTimeoutError: RayRollouts: placement: expected the resources of 2"
        )
        found = said_by(nodes, 3, cpus=1, placement="strict_pack")
        assert "n_workers: expected at most 2" in found
        assert "puts all on one" in found
        # Only the user's own is left.
        states = [table["state"] for table in placement_group_table().values()]
        assert sorted(states) == ["CREATED", "REMOVED", "REMOVED"], states
        remove_placement_group(group)
    return node


def said_by(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main():
    ray_node = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**ray_node, "num_cpus": 2})
    try:
        lost = cluster.add_node(**ray_node, num_cpus=1, resources={"simulator": 1})
        with ExitStack() as stack:
            stack.enter_context(RaySession(cluster.address))
            # Once is enough, and before the run takes the CPU of the other node.
            node = check_places() if ROLLOUTS["large_bytes"] == 0 else ""
            buffer, _, workers = stack.enter_context(rollouts(**ROLLOUTS))
            publish(workers, 1)
            (before,) = workers.ask_statuses()
            assert before.where.startswith(node)
            pids = [actor_pid(before), *env_pids(before)]
            wait_until(lambda: buffer.prepared() == CAPACITY, "a full buffer")
            found = buffer.fetch(CAPACITY, 5)
            cluster.remove_node(lost)
            wait_until(lambda: all(map(gone, pids)), "the end of the worker's processes")
            cluster.add_node(**ray_node, num_cpus=1, resources={"simulator": 1})
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
