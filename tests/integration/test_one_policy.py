"""A trained policy plays the same episodes everywhere, with equal returns and lengths."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec

import pytest
from deployments import (
    SEEDS,
    as_operators,
    as_root_agent,
    from_the_folder,
    in_games,
    in_process,
    in_worker_processes,
    over_json,
    served,
)
from short_runs import Config, build

from parllel.runners import train
from parllel.testing import MockKafkaBroker

pytestmark = pytest.mark.heavy
# By extra: what cannot be imported without it.
NEEDED = {
    "remote": ("h11", "google.protobuf", "msgspec"),
    "operators": ("PIL", "msgspec"),
    "rollouts": ("ray",),
    "wire": ("msgspec",),
    "kafka": ("confluent_kafka",),
}


def missing(extra):
    """Return what of an extra is not installed."""
    return [module for module in NEEDED[extra] if find_spec(module) is None]


def different(places):
    """Return a table that says which places differ from the first, or "" if none does."""
    (_, expected), *_ = places.items()
    wrong = {
        place: [seed for seed in SEEDS if played.get(seed) != expected[seed]]
        for place, played in places.items()
    }
    if not any(wrong.values()):
        return ""
    lines = ["expected the same (return, length) everywhere:"]
    for place, seeds in wrong.items():
        lines.append(
            f"  {place}: " + (f"{len(seeds)} of {len(SEEDS)} differ" if seeds else "equal")
        )
        for seed in seeds[:3]:
            came = places[place].get(seed)
            lines.append(f"    seed {seed}: expected {expected[seed]}, got {came}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, open_fonts):
    """Return a function that trains a run of a name, once."""
    base, paths = tmp_path_factory.mktemp("runs"), {}

    def run_of(name):
        if name not in paths:
            paths[name] = train(build, Config(name), base=base, name=name)[1].path
        return paths[name]

    return run_of


@pytest.mark.parametrize(
    "name", ["cart_pole", pytest.param("half_cheetah", marks=pytest.mark.soak)]
)
def test_a_policy_plays_alike_at_every_distance(name, runs, tmp_path, request):
    if name == "half_cheetah":
        pytest.importorskip("mujoco", reason="the extra `examples` is not installed")
    run = runs(name)
    played = {"in process": in_process(name, run)}
    assert len(set(played["in process"].values())) > 1
    played["in worker processes"] = in_worker_processes(name, run)
    played["from its folder"] = from_the_folder(name, run)
    left_out = {extra: modules for extra in NEEDED if (modules := missing(extra))}
    with ExitStack() as stack:
        if "remote" not in left_out:
            url = stack.enter_context(served(name, run))
            played["over JSON"] = over_json(name, url)
            played["over JSON, in a game"] = in_games(name, url)
            played["over protobuf"] = in_games(name, {"type": "proto", "url": url})
            if "operators" not in left_out:
                for kind, of_kind in as_operators(name, run, url, tmp_path).items():
                    played[f"as an operator of kind {kind}"] = of_kind
    if "wire" not in left_out:
        played["as root agent over memory"] = as_root_agent(name, run)
        if "kafka" not in left_out:
            played["as root agent over Kafka"] = over_kafka(name, run)
    if "rollouts" not in left_out:
        request.getfixturevalue("ray_here")
        from ray_worker import in_a_ray_actor

        played["in a Ray actor"] = in_a_ray_actor(name, run)
    assert not (table := different(played)), table
    if left_out:
        pytest.skip(f"equal at {len(played)} places; not installed for others: {left_out}")


def over_kafka(name, run):
    with MockKafkaBroker() as kafka:
        settings = {"kafka_mode": "kafka", "broker_kwargs": {"bootstrap": kafka.address}}
        return as_root_agent(name, run, **settings)


def test_a_distance_that_differs_is_named():
    played = dict.fromkeys(SEEDS, (9.0, 9))
    other = {**played, SEEDS[3]: (9.0, 10)}
    del other[SEEDS[5]]
    assert different({"here": played, "there": dict(played)}) == ""
    assert different({"here": played, "there": other, "beyond": played}) == (
        "expected the same (return, length) everywhere:\n"
        "  here: equal\n"
        "  there: 2 of 20 differ\n"
        f"    seed {SEEDS[3]}: expected (9.0, 9), got (9.0, 10)\n"
        f"    seed {SEEDS[5]}: expected (9.0, 9), got None\n"
        "  beyond: equal"
    )
