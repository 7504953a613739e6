"""A thousand deaths of environments in training runs of CartPole: none ends a run, and all runs learn.

Environments die by exit, SIGKILL, segmentation fault and, rarely, hang. Each kind of cage trains PPO, or
RecurrentPPO, once without deaths and once with its share of them. For each kind a line is printed: how many
died in which way (e, k, s, h), the return reached with and without deaths, seconds, memory and descriptors.

PARLLEL_SOAK_DEATHS (1000) says how many environments die, in all runs together. PARLLEL_SOAK_MINUTES (10) is
the length: 10,000 steps of each run for each minute, which two idle cores need about that long for. Below
10 minutes, runs are too short to learn, and their returns are printed but not compared.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from mortal_env import MortalEnv
from private_memory import private_memory

from parllel import BatchSpec, Seeds
from parllel.cages import ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.logging import JsonlWriter, Logger
from parllel.runners import Callback, OnPolicyRunner
from parllel.samplers import AlternatingSampler
from parllel.system.processes import RestartBudget
from parllel.torch import (
    PPO,
    Categorical,
    CategoricalHead,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
    agent_for,
)
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeRewards
from parllel_patterns import PpoParameters, build_eval_sampler, build_sampler

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

DEATHS = int(os.environ.get("PARLLEL_SOAK_DEATHS", 1000))
MINUTES = float(os.environ.get("PARLLEL_SOAK_MINUTES", 10))
T, B, N_EVAL = 128, 8, 32
N_STEPS = int(10_000 * MINUTES)
LEARNS = MINUTES >= 10
TIMEOUT_S = 30.0  # also for eight processes to start, on a busy machine
MAY_GROW = 8 * 2**20  # bytes


class Holdings(Callback):
    """Memory and descriptors after each batch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def after_optimization(self, elapsed_steps: int, diagnostics: Any) -> None:
        """Look at what this process holds."""
        self.seen.append((private_memory(), psutil.Process().num_fds()))


def cages_of(kind: str, make: Any, seeds: Any, restarts: RestartBudget | None) -> list[Any]:
    options: dict[str, Any] = {"restarts": restarts, "timeout_s": TIMEOUT_S}
    options["reset_automatically"] = kind not in ("waiting for resets", "recurrent")
    if kind == "process cages":
        return [ProcessCage(make, seed=seeds[b], index=b, **options) for b in range(B)]
    groups = 2 if kind == "alternating" else 1
    return [
        SynchronizedProcessCage([make] * B, n_workers=B, n_groups=groups, seeds=seeds, **options)
    ]


def feedforward_agent(cages: list[Any], seeds: Seeds) -> Any:
    return agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(64, 64), policy_gain=0.0)


def recurrent_agent(seeds: Seeds) -> Any:
    model = RecurrentPgModel(
        (4,), CategoricalHead(2), (64,), 64, cell="lstm", seed=seeds.integer("model")
    )
    return RecurrentPgAgent(model, Categorical(2), seed=seeds.integer("agent"))


def train(kind: str, folder: Path, deaths: int) -> tuple[float, dict[str, Any], Holdings]:
    """Return the mean return of the best evaluation, the last row of the log, and the holdings."""
    folder.mkdir()
    seeds = Seeds(1)
    budget = RestartBudget(10**6, 1e9, 0.0, 0.0)
    make = partial(MortalEnv, folder, deaths / N_STEPS)
    cages = cages_of(kind, make, seeds.spawn("environments", B), budget if deaths else None)
    agent = recurrent_agent(seeds) if kind == "recurrent" else feedforward_agent(cages, seeds)
    rewards = [NormalizeRewards(0.99)] if kind == "recurrent" else []
    reward = "env.normalized_reward" if rewards else "env.reward"
    transforms: Any = [*rewards, EstimateAdvantage(0.99, 0.95, reward), NormalizeAdvantage()]
    more: dict[str, Any] = {"sampler_class": AlternatingSampler} if kind == "alternating" else {}
    spec, holdings = BatchSpec(T, B), Holdings()
    parameters = PpoParameters(
        learning_rate=1e-3,
        learning_rate_anneal_steps=N_STEPS,
        epochs=10,
        # Of whole columns in RecurrentPPO, where the memory goes through all of their steps.
        minibatches=4 if kind == "recurrent" else 8,
        kl_limit=None if kind == "recurrent" else 0.01,
    )
    evaluation = [
        VectorizedCage(
            [partial(gym.make, "CartPole-v1")] * N_EVAL, seeds=seeds.spawn("evaluation", N_EVAL)
        )
    ]
    with (
        Logger([JsonlWriter(folder)]) as logger,
        build_sampler(spec, cages, TorchHandler(agent), [], transforms, **more) as sampler,
        build_eval_sampler(evaluation, sampler, N_EVAL) as eval_sampler,
    ):
        result = OnPolicyRunner(
            spec,
            sampler,
            (RecurrentPPO if kind == "recurrent" else PPO)(agent, **parameters, seed=0),
            n_steps=N_STEPS,
            logger=logger,
            log_interval_steps=max(N_STEPS // 10, 2 * T * B),
            eval_sampler=eval_sampler,
            callbacks=[holdings],
        ).run()
    (log,) = folder.glob("*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    # Without notices, which are no rows.
    rows = [row for row in rows if "training/return/mean" in row]
    best = max(mean for _, mean in result.curves["evaluation"])
    return best, rows[-1], holdings


# The last does not need the compiled waits, which the fork server imports only if it is not running yet.
KINDS = ("one worker each", "alternating", "waiting for resets", "recurrent", "process cages")


@pytest.mark.parametrize("kind", KINDS)
def test_training_with_deaths(kind: str, tmp_path: Path) -> None:
    began = time.monotonic()
    plain, _, _ = train(kind, tmp_path / "plain", 0)
    plain_s = time.monotonic() - began
    began = time.monotonic()
    expected = DEATHS // len(KINDS)
    learned, row, holdings = train(kind, tmp_path / "mortal", expected)
    died = (tmp_path / "mortal" / "deaths").read_text()
    memory, descriptors = np.array(holdings.seen).T
    settled = len(memory) // 5
    print(
        f"\n{kind}: {len(died)} deaths {dict(Counter(died))}, return {learned:.1f}, without deaths "
        f"{plain:.1f}; {time.monotonic() - began:.0f} s, without deaths {plain_s:.0f} s; private memory "
        f"{memory[settled] / 2**20:.1f} -> {memory[-1] / 2**20:.1f} MiB, descriptors "
        f"{descriptors[settled]} -> {descriptors[-1]}"
    )
    # They are drawn step by step: four standard deviations fewer.
    assert len(died) > expected - 4 * expected**0.5
    # Every death is one restart, and one crashed episode in the log.
    assert row["sampler/restarts"] == row["sampler/crashed_episodes"] == len(died)
    assert memory[-1] - memory[settled] < MAY_GROW
    # Fewer, where garbage of the run without deaths is collected late.
    assert descriptors[-1] <= descriptors[settled]
    assert not LEARNS or learned > 0.85 * plain
