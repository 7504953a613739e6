"""A run on a cluster of two nodes, of which the one with the other learner is lost; says what became of it.

python learner_nodes.py FOLDER
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import ray
from learner_runs import Config, build
from ray.cluster_utils import Cluster

from parllel.distributed.rollouts.on_ray import RaySession
from parllel.errors import WorkerError
from parllel.runners import train


def main(base):
    ray_node = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    head = {**ray_node, "num_cpus": 1}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        # The address differs; the learner needs what only this node has.
        lost = cluster.add_node(
            **ray_node, num_cpus=1, resources={"simulator": 1}, node_ip_address="127.0.0.2"
        )
        with RaySession(cluster.address):
            config = Config(on_ray=True, real=True, simulator=0.5, n_steps=10**7)
            removed = []

            def remove():
                rows = base / "run" / "progress.jsonl"
                while not (rows.is_file() and rows.read_text().count("\n") > 4):
                    time.sleep(0.1)
                removed.append(time.monotonic())
                cluster.remove_node(lost, allow_graceful=False)

            thread = threading.Thread(target=remove, daemon=True)
            thread.start()
            try:
                train(build, config, base=base, name="run")
            except WorkerError as error:
                seconds = time.monotonic() - removed[0]
                said = {"error": f"{type(error).__name__}: {error}", "seconds": seconds}
            thread.join()
            print(json.dumps(said), flush=True)
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
