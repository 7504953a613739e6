"""Choice of how to spread environments over processes, from a short measurement and a cost model.

The model predicts the time of one row: one step of all B environments. E(b) is the time of b environments in
one process: b (e + c), where c is the sampler's own work for each environment (its checks, flags, reward and
trajectory), or f + b e for a native vector environment with a fixed part f. W workers step all but m
environments, which the main process steps itself, so the largest share is w = ceil((B - m) / W). The agent
takes I(b) to act for b environments, and r is the sampler's own work for a row, whatever B is:

    in this process   r + I(B) + E(B)
    one group         r + I(B) + s + max(E(w), E(m), k A / cores)
    two groups        max(E(w), 2 r + 2 I(B / 2) + 2 s + E(m), (k A + 2 r + 2 I(B / 2)) / cores)

With two groups the agent acts for one half while the other half steps, and f counts twice. A is the total
time of all processes. k is 1, or the number of cores that a native environment keeps busy with its threads,
which are not available to workers.

s is the cost of starting the workers and waiting for them. With fewer cores than busy processes waits do not
spin, so s includes waking a process. Cores that other programs keep busy are not counted: a worker that has
to wait for its core holds up every row.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from parllel.agents.handler import Handler
from parllel.buffers.tree import buffer_map
from parllel.cages.spaces import Spaces, stored_example
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.samplers.step_cost import StepCost, measure_step_cost
from parllel.system.processes.cores import available_cores

# Of the sampler's loop, in CartPole's medians on two idle cores.
ROW_S = 5e-6  # of a row
ENV_ROW_S = 1e-6  # and of each environment in it
SIGNAL_S = 3.5e-6  # for a worker to see the start, and for the main process to see the end
WAKE_S = 60e-6  # for the system to wake a sleeping process
SPIN_US = 1000.0
GAIN = 0.95  # a plan with more workers or groups must take less than this share of a simpler plan's time

# Seconds that an agent takes to act for a given number of environments at once.
InferenceCost = Callable[[int], float]


@dataclass(frozen=True)
class Plan:
    """How to spread environments over processes.

    Attributes:
        n_workers: processes besides this one; 0 keeps all environments in this process.
        n_main: number of environments that this process steps; all of them if there are no workers.
        n_groups: 1, or 2 to let the agent act for one half while the other half steps.
        spin_us: how long a wait spins before it sleeps, in microseconds.
        cores: core numbers to pin the workers to; None leaves the choice to the system.
        why: reason for the choice, in words.
        saved_s: predicted seconds saved in each step of all environments, compared with one process.
    """

    n_workers: int
    n_main: int = 0
    n_groups: int = 1
    spin_us: float = SPIN_US
    cores: tuple[int, ...] | None = None
    why: str = "fixed by hand"
    saved_s: float = 0.0

    def __str__(self) -> str:
        if not self.n_workers:
            where = "all environments in this process"
        else:
            workers = f"{self.n_workers} worker{'s' if self.n_workers > 1 else ''}"
            main = f" and {self.n_main} environments in this process" if self.n_main else ""
            where = f"{workers}{main}, {'one group' if self.n_groups == 1 else 'two groups'}"
        return f"{where}: {self.why}"


def plan_sampling(
    env_factory: EnvFactory | VectorEnvFactory,
    n_envs: int,
    *,
    inference_cost: InferenceCost | None = None,
    step_s: float | None = None,
    n_cores: int | None = None,
) -> Plan:
    """Return the fastest plan according to the model of this module.

    Args:
        env_factory: function that makes an environment or a native vector environment. Its steps
            are measured for a tenth of a second.
        n_envs: number of environments to plan for.
        inference_cost: cost of the agent's actions, see `measure_inference`. Without it the plan
            has one group, so that results do not depend on the machine: networks round differently
            for half as many rows.
        step_s: seconds per environment step; None measures it.
        n_cores: number of cores to plan for; None counts those that this process may use, and measures which
            of them other programs leave.

    Raises:
        ValueError: if a number is not positive.
    """
    n_cores = available_cores(n_envs) if n_cores is None else n_cores
    for name, value in (("n_envs", n_envs), ("n_cores", n_cores), ("step_s", step_s)):
        if value is not None and not value > 0:
            raise ValueError(f"{name}: expected a positive number, got {value}")
    step = measure_step_cost(env_factory, n_envs) if step_s is None else StepCost(step_s)
    return best_plan(n_envs, step, n_cores, inference_cost)


def best_plan(
    n_envs: int, step: StepCost, n_cores: int, inference_cost: InferenceCost | None = None
) -> Plan:
    """Return the fastest plan for a measured step cost, see `plan_sampling`."""
    act = inference_cost or (lambda b: 0.0)
    # Starts with the simplest plan; a more complex one must be clearly faster than the best so far.
    best = Plan(0, n_envs)
    predicted = here = plan_s(best, n_envs, step, n_cores, act)
    for plan in candidates(n_envs, n_cores, two_groups=inference_cost is not None):
        seconds = plan_s(plan, n_envs, step, n_cores, act)
        if seconds < predicted * (GAIN if _parts(plan) > _parts(best) else 1.0):
            best, predicted = plan, seconds
    why = (
        f"{step} and {n_cores} available core{'s' if n_cores > 1 else ''}; predicted "
        f"{predicted * 1e6:.0f} us for a step of all {n_envs}, {here * 1e6:.0f} us in one process"
    )
    return replace(best, why=why, saved_s=here - predicted)


def candidates(n_envs: int, n_cores: int, *, two_groups: bool) -> Iterator[Plan]:
    """Yield the plans to compare, with one group and few workers first."""
    for n_groups in (1, 2) if two_groups and n_envs > 1 else (1,):
        for n_workers in range(1, min(n_cores, n_envs) + 1):
            # With a worker on every core, a spinning main process would take time from one of them.
            spin_us = SPIN_US if n_workers < n_cores else 0.0
            # At most an equal share for the main process, which would otherwise be the slowest.
            for n_main in range(min(n_envs - n_workers, -(-n_envs // (n_workers + 1))) + 1):
                if n_workers < n_cores or not n_main:
                    yield Plan(n_workers, n_main, n_groups, spin_us)


def plan_s(plan: Plan, n_envs: int, step: StepCost, n_cores: int, act: InferenceCost) -> float:
    """Return the predicted seconds for one step of all environments."""
    if not plan.n_workers:
        return ROW_S + act(n_envs) + _share_s(step, n_envs, 1)
    groups = plan.n_groups
    # The worker with the most environments is the slowest.
    workers_s = _share_s(step, -(-(n_envs - plan.n_main) // plan.n_workers), groups)
    main_s = _share_s(step, plan.n_main, groups)
    processes = plan.n_workers + bool(plan.n_main)
    all_s = _share_s(step, n_envs, groups * processes) * step.busy_cores
    signal_s = SIGNAL_S + (WAKE_S if plan.n_workers >= n_cores else 0.0)
    if groups == 1:
        return ROW_S + act(n_envs) + signal_s + max(workers_s, main_s, all_s / n_cores)
    # Not act(n_envs): most of the cost of a small network is independent of the number of rows.
    acting_s = 2 * (ROW_S + act(n_envs // 2))
    # The bottleneck: the workers, this process, or all cores together.
    return max(
        workers_s + 2 * SIGNAL_S,
        acting_s + 2 * signal_s + main_s,
        (all_s + acting_s) / n_cores,
    )


def _share_s(step: StepCost, n: int, parts: int) -> float:
    """Return the seconds for one row of n environments, with the sampler's work for each."""
    # A native vector environment returns arrays, which are checked and stored as a whole.
    return step.seconds(n, parts) + (0.0 if step.native else n * ENV_ROW_S)


def _parts(plan: Plan) -> int:
    return plan.n_workers * plan.n_groups


def measure_inference(handler: Handler, spaces: Spaces, repetitions: int = 30) -> InferenceCost:
    """Return a function that measures the agent's median seconds to act for n environments.

    Each n is measured only once. The agent acts in eval mode, which leaves its random state
    unchanged, and is returned to sample mode afterwards.
    """
    known: dict[int, float] = {}

    def cost(n: int) -> float:
        if n not in known:
            known[n] = _time_acting(handler, spaces, n, repetitions)
        return known[n]

    return cost


def _time_acting(handler: Handler, spaces: Spaces, n: int, repetitions: int) -> float:
    observation = buffer_map(
        lambda x: np.zeros((n, *np.shape(x)), x.dtype),  # one row of a batch
        stored_example(spaces.observation),
    )
    handler.eval_mode()
    try:
        times = []
        for _ in range(repetitions):
            began = time.perf_counter()
            handler.act(observation, slice(0, n))
            times.append(time.perf_counter() - began)
    finally:
        handler.sample_mode()
    # Not the mean: the first call may compile or load code, and others may be interrupted.
    return statistics.median(times)
