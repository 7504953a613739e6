"""An actor that makes large fragments, and the same fragments made elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import fragments
import large_setup
import numpy as np
import ray
from fragments import make_fragment

from parllel.testing.fragment_maker import FragmentMaker

# Processes of Ray cannot import what is in a folder of tests.
for module in (fragments, large_setup):
    ray.cloudpickle.register_pickle_by_value(module)

LENGTH = 4


def large_fragment(sequence, nbytes, *, version=0, producer="a"):
    """Return a fragment of about `nbytes`, nearly all in its observation."""
    made = make_fragment(sequence, length=LENGTH, version=version, producer=producer)
    rng = np.random.default_rng(sequence)
    image = rng.integers(0, 256, (LENGTH, nbytes // LENGTH), np.uint8)
    image.flags.writeable = False
    env = made.env._replace(observation={**_as_dict(made.env.observation), "image": image})
    following = {**_as_dict(made.next_observation), "image": image[0].copy()}
    return replace(made, env=env, next_observation=following)


def _as_dict(node):
    return node if isinstance(node, dict) else node._asdict()


def start_maker(buffer, nbytes, name="a", *, dies=False):
    """Start an actor that makes such fragments; it ends with its handle."""
    make = partial(large_fragment, nbytes=nbytes, producer=name)
    options = {"num_cpus": 0, "max_concurrency": 2}
    return ray.remote(FragmentMaker).options(**options).remote(buffer, make, dies)
