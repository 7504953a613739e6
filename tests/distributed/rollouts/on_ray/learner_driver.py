"""A run on Ray whose first learner kills itself.

python learner_driver.py ADDRESS FOLDER
"""

from __future__ import annotations

import sys

from learner_runs import Config, build

from parllel.distributed.rollouts.on_ray import RaySession
from parllel.runners import train

if __name__ == "__main__":
    address, folder = sys.argv[1:]
    config = Config(on_ray=True, real=True, fault="kill", during="learn", who=0)
    with RaySession(address):
        train(build, config, base=folder, name="run")
