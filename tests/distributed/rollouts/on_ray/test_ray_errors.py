"""What goes wrong in a worker on Ray comes out at the trainer."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import ray
from ray_setup import QUARTER, SlowEnv, build_ready, publish, publish_until_error, wait_until

from parllel.distributed.rollouts import EpisodeStatistics, ReplayBuffer
from parllel.distributed.rollouts.on_ray import (
    RayEpisodeStatistics,
    RayReplayBuffer,
    RayRollouts,
    WorkerOptions,
)
from parllel.distributed.rollouts.on_ray.ray_episode_statistics import StatisticsActor
from parllel.errors import RestartsUsedUpError

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]


class ScriptError(Exception):
    """One of a user's script, with arguments of its own."""

    def __init__(self, code, where):
        super().__init__(code, where)


class RaisingEnv(SlowEnv):
    """Raises in its third step."""

    def step(self, action):
        if self._step == 2:
            raise ScriptError(3, "environment")
        return super().step(action)


def raise_in_handler(step):
    if step.environment == 1:
        raise ScriptError(4, "handler")


def build_any(place):
    """Put a worker together that fails, each in another way."""
    if place.name == "worker 0":
        return build_ready(place, progress_handler=raise_in_handler)
    if place.name == "worker 1":
        return build_ready(place, make_env=RaisingEnv)
    if place.name == "worker 2":
        return build_ready(replace(place, name="another"))
    raise ScriptError(5, "build")


@pytest.fixture(scope="module")
def shared(ray_here):
    """A buffer and statistics for several runs of workers, which are not closed with these."""
    with RayReplayBuffer(64) as buffer, RayEpisodeStatistics() as statistics:
        yield buffer, statistics


def test_errors_arrive_as_themselves(shared):
    errors = {}
    with RayRollouts(build_any, 4, *shared, QUARTER) as workers:
        while len(errors) < 4:
            try:
                publish_until_error(workers)
            except (ScriptError, ValueError) as error:
                trace = str(error.__cause__)
                errors[re.search(r"worker (\d) on Ray", trace)[1]] = error, trace
        for number, where, function in (
            ("0", "handler", "raise_in_handler"),
            ("1", "environment", "step"),
            ("3", "build", "build_any"),
        ):
            error, trace = errors[number]
            assert type(error) is ScriptError
            assert error.args[1] == where
            assert f"in {function}" in trace
        assert "producer=context.name, 'worker 2', got 'another'" in str(errors["2"][0])
        wait_until(
            lambda: {status.phase for status in workers.ask_statuses()} == {"ended"}, "the end"
        )


def test_arguments_are_refused_at_once(shared):
    buffer, statistics = shared
    with pytest.raises(ValueError, match="n_workers: expected at least 1"):
        RayRollouts(build_ready, 0, buffer, statistics)
    with pytest.raises(
        ValueError, match=r"n_workers: expected at most 2, for 1 CPU and 0 GPU .*got 3"
    ):
        RayRollouts(build_ready, 3, buffer, statistics)
    with pytest.raises(ValueError, match="expected at most 0, for 0 CPU and 1 GPU each"):
        RayRollouts(build_ready, 1, buffer, statistics, WorkerOptions(cpus=0, gpus=1))
    said = "for 1 CPU, 0 GPU and 0.5 simulator each on nodes that have 2 CPU, 0 GPU and 0 simulator"
    options = WorkerOptions(resources={"simulator": 0.5})
    with pytest.raises(ValueError, match=f"at most 0, {said}, got 1"):
        RayRollouts(build_ready, 1, buffer, statistics, options)
    with pytest.raises(TypeError, match="buffer: expected a RayReplayBuffer"):
        RayRollouts(build_ready, 1, ReplayBuffer(1), statistics)
    with pytest.raises(TypeError, match="statistics: expected a RayEpisodeStatistics"):
        RayRollouts(build_ready, 1, buffer, EpisodeStatistics())
    with pytest.raises(ValueError, match="capacity: expected at least 1"):
        RayReplayBuffer(0)
    for arguments in ({"cpus": -1}, {"restarts": -1}, {"within_s": 0}, {"start_timeout_s": 0}):
        with pytest.raises(ValueError, match=f"WorkerOptions: {next(iter(arguments))}: expected"):
            WorkerOptions(**arguments)
    with pytest.raises(ValueError, match=r"WorkerOptions: resources\['simulator'\]: expected 0 or"):
        WorkerOptions(resources={"simulator": -1})
    with pytest.raises(ValueError, match="WorkerOptions: resources: 'GPU' is set by gpus"):
        WorkerOptions(resources={"GPU": 1})
    for arguments, text in (
        (
            {"placement": "close"},
            "expected one of .*'strict_pack'.* or a placement group, got 'close'",
        ),
        ({"placement": "pack", "cpus": 0}, "expected 'spread' for workers that reserve nothing"),
    ):
        with pytest.raises(ValueError, match=f"WorkerOptions: placement: {text}"):
            WorkerOptions(**arguments)
    options = WorkerOptions(placement="strict_spread", cpus=0.5)
    with pytest.raises(ValueError, match=r"at most 1, .* puts each on a separate one.*, got 2"):
        RayRollouts(build_ready, 2, buffer, statistics, options)
    # An error of an actor's method comes as itself, too.
    with pytest.raises(ValueError, match="expected 1 to 64") as caught:
        buffer.fetch(65, 0)
    assert "traceback of the actor" in str(caught.value.__cause__)


def test_resources_that_others_have(shared):
    holder = ray.remote(StatisticsActor).options(num_cpus=1.5).remote(1)
    ray.get(holder.drain.remote())
    options = WorkerOptions(cpus=1, restarts=0, start_timeout_s=1.0)
    with RayRollouts(build_ready, 1, *shared, options) as workers:
        with (
            pytest.warns(
                RuntimeWarning, match=r"(?s)worker 0 is parked: .*no node had 1 CPU and 0 GPU"
            ),
            pytest.raises(RestartsUsedUpError, match="all workers are parked"),
        ):
            publish(workers, 1)
        (status,) = workers.ask_statuses()
        assert (status.phase, status.where) == ("parked", "")
    # What is still waited for does not hold up the end.
    with RayRollouts(build_ready, 1, *shared, WorkerOptions(cpus=1)) as workers:
        workers.close()
        workers.close()
    ray.kill(holder)
