"""PPO learns from a batch in which a process died as from one without the lost steps."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crashing_env import CrashingEnv

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm
from parllel.buffers import NamedTuple, Samples
from parllel.cages import ProcessCage
from parllel.logging import JsonlWriter, Logger
from parllel.runners import OnPolicyRunner, check_parts
from parllel.system.processes import RestartBudget
from parllel.testing import CountingEnv
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, build_sampler

T, B = 8, 3


def sampler_with_a_death(folder: Path, at: int = 5) -> tuple[Any, Any]:
    make = partial(CountingEnv, 20, layout="image")
    makes = [make, partial(CrashingEnv, make, folder, at=at), make]
    budget = RestartBudget(1, 1e6, 0.0, 0.0)
    cages = [
        ProcessCage(one, seed=b, index=b, restarts=budget, start_method="fork")
        for b, one in enumerate(makes)
    ]
    agent = agent_for(cages[0].spaces, seeds=Seeds(0))
    transforms: Any = [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]
    return build_sampler(BatchSpec(T, B), cages, TorchHandler(agent), [], transforms), agent


def without_lost(samples: Any) -> Samples:
    """Return the valid steps of a batch as arrays of one column, without the field `valid`."""
    valid = np.array(samples.env.valid)

    def rows(field: Any) -> Any:
        if hasattr(field, "_asdict"):
            return NamedTuple(**{name: rows(part) for name, part in field._asdict().items()})
        return np.asarray(field)[:T][valid][:, None]

    agent = samples.agent
    parts = {
        name: rows(getattr(agent, name))
        for name in ("action", "observation", "advantage", "return_")
    }
    info = {name: rows(getattr(agent.agent_info, name)) for name in ("value", "log_prob")}
    agent_part = NamedTuple(**parts, agent_info=NamedTuple(**info))
    return Samples(agent=agent_part, env=NamedTuple(done=None))


@pytest.mark.parametrize("update", ["autograd", "flat"])
def test_updates_equal_those_without_the_lost_step(update: Any, tmp_path: Path) -> None:
    sampler, agent = sampler_with_a_death(tmp_path)
    settings = {**PPO_DEFAULTS, "epochs": 1, "minibatches": 1, "kl_limit": None}
    with sampler:
        samples, _ = sampler.collect_batch(0)
        valid = np.asarray(samples.env.valid)
        assert valid.sum() == T * B - 1
        # What the row holds must not matter.
        for field in (samples.agent.advantage, samples.agent.return_):
            np.asarray(field)[~valid] = np.nan
        np.asarray(samples.agent.agent_info.log_prob)[~valid] = np.nan
        alone = without_lost(samples)
        start = {name: value.clone() for name, value in agent.model.state_dict().items()}
        PPO(agent, **settings, seed=0, update=update).optimize_agent(0, samples)
        learned = {name: value.clone() for name, value in agent.model.state_dict().items()}
        agent.model.load_state_dict(start)
        PPO(agent, **settings, seed=0, update="autograd").optimize_agent(0, alone)
        for name, value in agent.model.state_dict().items():
            # Adam's first step is the learning rate wherever a gradient is not zero, or not so small that
            # roundings decide about it: to a fiftieth of it.
            torch.testing.assert_close(learned[name], value, rtol=1e-4, atol=5e-6)
            assert not torch.equal(value, start[name]) or not value.requires_grad


def test_the_log_counts_restarts_and_crashed_episodes(tmp_path: Path) -> None:
    (tmp_path / "deaths").mkdir()
    sampler, agent = sampler_with_a_death(tmp_path / "deaths")
    with sampler, Logger([JsonlWriter(tmp_path)]) as logger:
        OnPolicyRunner(
            BatchSpec(T, B),
            sampler,
            PPO(agent, **{**PPO_DEFAULTS, "minibatches": 1}, seed=0),
            n_steps=4 * T * B,
            logger=logger,
            log_interval_steps=T * B,
        ).run()
        assert sampler.overview().startswith("1 restarts, 1 crashed episodes; cage 1 (CountingEnv)")
    (log,) = tmp_path.glob("*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    row = [row for row in rows if "sampler/restarts" in row][-1]
    assert row["sampler/restarts"] == row["sampler/crashed_episodes"] == 1
    # Steps are counted without the lost one, and episodes without the crashed one.
    assert row["step"] % (T * B) == T * B - 1
    lengths = [row["training/length/min"] for row in rows if "training/length/min" in row]
    assert min(lengths) == 20


class IgnorantAlgorithm(Algorithm):
    def optimize_agent(self, elapsed_steps: int, samples: Any) -> dict[str, Any]:
        return {}


def test_an_algorithm_that_ignores_lost_steps_is_refused(tmp_path: Path) -> None:
    sampler, agent = sampler_with_a_death(tmp_path)
    with sampler:
        check_parts(BatchSpec(T, B), sampler, PPO(agent, **PPO_DEFAULTS, seed=0))
        with pytest.raises(ValueError, match=r"IgnorantAlgorithm: expected .* reads env\.valid"):
            check_parts(BatchSpec(T, B), sampler, IgnorantAlgorithm())
