"""What JAX does to its process: threads, forks, and what is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parllel.jax.compilation import CompileTimes
from parllel.system.compilation import seconds_compiling

TRAIN = """
import sys
from functools import partial
import gymnasium as gym
from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.jax import PPO, agent_for
from parllel.transforms import EstimateAdvantage
from parllel_patterns import PPO_DEFAULTS, build_cages, build_sampler

def train():
    seeds = Seeds(0)
    cages = build_cages(partial(gym.make, "CartPole-v1"), 2, seeds=seeds)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,))
    ppo = PPO(agent, **PPO_DEFAULTS, seed=0)
    transforms = [EstimateAdvantage(0.9, 0.9)]
    with build_sampler(BatchSpec(8, 2), cages, NumpyHandler(agent), [], transforms) as sampler:
        samples, _ = sampler.collect_batch(0)
        return ppo.optimize_agent(16, samples)
"""
THREADS = """
import os
from pathlib import Path
def computing():
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("tf_XLAEigen") for name in names)
"""


def run(code, **environ):
    environ = {**os.environ, **environ}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def test_a_training_imports_no_torch():
    code = f"{TRAIN}\nassert train()['epochs'] == 4\nassert 'jax' in sys.modules\n"
    done = run(f"{code}sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("environ", "expected"), [({}, "1"), ({"PJRT_NPROC": "3"}, "3"), ({"NPROC": "2"}, "2")]
)
def test_small_models_compute_with_one_thread_unless_the_environment_says_otherwise(
    environ, expected
):
    code = f"{TRAIN}{THREADS}\ntrain()\nprint(computing(), 'PJRT_NPROC' in os.environ)"
    without = {name: "" for name in ("PJRT_NPROC", "NPROC") if name in os.environ}
    assert not without, "these tests need an environment without them"
    done = run(code, **environ)
    assert done.stdout.split() == [expected, str("PJRT_NPROC" in environ)], done.stderr


def test_a_large_model_gets_the_threads_that_jax_chooses():
    code = f"""{THREADS}
import numpy as np
from parllel.jax import Model
Model(lambda parameters, observation: None, np.zeros((400, 500), np.float32))
assert computing() in (0, len(os.sched_getaffinity(0))), computing()
import jax
jax.jit(lambda x: x @ x)(np.ones((8, 8), np.float32)).block_until_ready()
assert computing() == len(os.sched_getaffinity(0)), computing()
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_importing_starts_no_threads():
    # So that a program may fork after its imports.
    code = "import os, parllel.jax; os.fork() or os._exit(0); os.wait()"
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


MISSING = (
    "ImportError: parllel.jax needs JAX and optax: pip install '.[jax]' in a checkout of parllel"
)


@pytest.mark.parametrize("library", ["jax", "optax"])
@pytest.mark.parametrize("module", ["parllel.jax", "parllel.jax.ppo"])
def test_the_error_names_the_extra(module, library):
    # None in sys.modules is how Python itself marks a module that must not be found.
    done = run(f"import sys; sys.modules[{library!r}] = None; import {module}")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == MISSING


def test_the_rest_does_not_import_jax():
    code = "import sys, parllel.agents, parllel.algos; sys.exit('jax' in sys.modules)"
    assert run(code).returncode == 0


FORK = """
import warnings
from functools import partial
import gymnasium as gym
from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.cages import ProcessCage
from parllel.jax import agent_for
from parllel_patterns import build_sampler

def cage(seed):
    return ProcessCage(partial(gym.make, "CartPole-v1"), seed=seed, start_method="fork")

cages = [cage(seed) for seed in range(2)]
agent = agent_for(cages[0].spaces, seeds=Seeds(0), hidden_sizes=(8,))
with build_sampler(BatchSpec(4, 2), cages, NumpyHandler(agent)) as sampler:
    samples, _ = sampler.collect_batch(0)
    print(samples.agent.action.shape)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cage(2).close()
print([str(one.message) for one in caught if "JAX is multithreaded" in str(one.message)] != [])
"""


def test_cages_that_fork_are_made_before_the_agent():
    done = run(FORK)
    assert done.stdout.split("\n")[:2] == ["(4, 2)", "True"], done.stderr


def test_what_jax_compiles_is_counted_and_is_less_than_all_that_was_done():
    code = f"""{TRAIN}
import time
from parllel.system.compilation import seconds_compiling
begin = time.perf_counter()
train()
print(seconds_compiling(), time.perf_counter() - begin)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    compiling, all_s = map(float, done.stdout.split())
    assert 0 < compiling < all_s


def test_a_function_traced_within_another_is_counted_once():
    before, times = seconds_compiling(), CompileTimes()
    event = "/jax/core/compile/jaxpr_trace_duration"
    times(event, 0.25)
    times(event, 1.0, fun_name="outer")
    times("/jax/core/compile/backend_compile_duration", 1e-9)
    times("/jax/compilation_cache/cache_retrieval_time_sec", 5.0)
    assert seconds_compiling() - before == pytest.approx(1.0)
