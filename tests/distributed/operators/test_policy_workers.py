"""Policies act in workers as they do in process, bit for bit."""

from __future__ import annotations

import json
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
import torch
import trained_runs
from cleanrl_models import ContinuousAgent, DiscreteAgent, saved
from gymnasium import spaces
from launching import run_worker
from played import assert_plays
from served import Served
from trained_runs import Config, build, cart, half_blind_cart

from parllel.distributed.operators import OperatorConfig
from parllel.distributed.operators.workers import operators_worker, policy_worker, rl_worker
from parllel.distributed.operators.workers.cleanrl_policy import CleanRlPolicy
from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime
from parllel.distributed.operators.workers.policy_worker import PolicyWorkerAgent
from parllel.distributed.operators.workers.rl_worker import normalized
from parllel.distributed.operators.workers.worker_main import worker_parser
from parllel.policies import env_named, load_policy, play_episodes, policy_of
from parllel.policies.basic_policies import FunctionPolicy
from parllel.runners import train

SEEDS = range(4)
CART = {"env_id": "CartPole-v1", "env_kwargs": {"max_episode_steps": 60}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of two runs, one of which remembers."""
    base = tmp_path_factory.mktemp("runs")
    return [train(build, Config(recurrent), base=base)[1].path for recurrent in (False, True)]


@pytest.fixture(scope="module")
def expected(runs):
    """Return what the policy of the first run plays."""
    return expected_of(load_policy(runs[0]), cart)


def launched(launcher, kind, policy, **options):
    config = OperatorConfig(kind, "one", policy=str(policy), **options)
    return launcher.launch_operator(config, "run_one", interactive=True)


def expected_of(policy, make_env):
    """Return episodes, and close the policy."""
    with policy:
        return play_episodes(policy, make_env, SEEDS, keep_actions=True)


def test_a_run_plays_the_same_episodes_in_a_worker(launcher, runs, expected):
    assert len({one.traj.length for one in expected}) > 1
    assert_plays(launched(launcher, "rl", runs[0], **CART), expected)


def test_a_memory_begins_anew_with_each_episode(launcher, runs):
    expected = expected_of(load_policy(runs[1]), half_blind_cart)
    env_id = f"{trained_runs.__file__}:half_blind_cart"
    assert_plays(launched(launcher, "rl", runs[1], env_id=env_id), [*expected, *expected])


def test_a_run_behind_a_url_plays_them_too(launcher, runs, expected):
    words = ["remote", "serve", "--port", 0, "--environment", "gymnasium/CartPole-v1"]
    with Served("-m", "parllel", *words, "--agent", runs[0]) as server:
        assert_plays(launched(launcher, "policy", server.url, **CART), expected)


def test_a_function_of_a_file_plays_as_a_baseline(launcher, tmp_path):
    file = tmp_path / "lean.py"
    file.write_text(
        "print('loaded')\ndef lean(seen):\n    print('asked')\n    return int(seen[2] > 0)\n"
    )
    env = cart()
    expected = expected_of(policy_of(str(file), env.observation_space, env.action_space), cart)
    assert_plays(launched(launcher, "baseline", f"{file}:lean", **CART), expected)


def test_models_of_cleanrl_play(launcher, tmp_path):
    torch.manual_seed(0)
    path, env = saved(tmp_path / "ppo.cleanrl_model", DiscreteAgent()), cart()
    policy = CleanRlPolicy.from_file(path, env.observation_space, env.action_space)
    assert_plays(launched(launcher, "rl", path, **CART), expected_of(policy, cart))


def loaded_here(worker, policy, env_id="CartPole-v1", settings=None, interactive=True):
    """Return what a worker would serve, and its environment or None."""
    words = ["--policy", str(policy)] + ["--interactive"] * interactive
    make_env = None if env_id is None else env_named(env_id)
    given = worker_parser("worker", "").parse_args(words)
    loaded = worker.load(given, settings or {}, make_env)
    runtime = InteractiveRuntime(loaded.agent, loaded.env_factory)
    with closing(runtime):
        runtime.make_env()
        runtime.bind()
        return loaded, runtime.answer(b'{"cmd": "reset", "seed": 3}')


def test_continuous_models_of_cleanrl_see_normalized_observations(tmp_path):
    path = saved(tmp_path / "ppo.cleanrl_model", ContinuousAgent())
    found = [
        loaded_here(rl_worker, path, "Pendulum-v1", settings)[0].env_factory()
        for settings in ({}, {"normalize": True}, {"normalize": False})
    ]
    seen = [env.reset(seed=0)[0] for env in found]
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], normalized(gym.make("Pendulum-v1")).reset(seed=0)[0])
    np.testing.assert_array_equal(seen[2], gym.make("Pendulum-v1").reset(seed=0)[0])


def test_a_batch_without_an_environment_plays_that_of_the_run(runs):
    loaded, reply = loaded_here(policy_worker, runs[1], None, interactive=False)
    env = loaded.env_factory()
    assert env.observation_space == half_blind_cart().observation_space
    assert json.loads(reply)["observation_shape"] == [2]
    # One that is driven may be a player.
    loaded, reply = loaded_here(policy_worker, runs[1], None)
    assert loaded.env_factory is None
    assert "this worker only plays games" in json.loads(reply)["message"]


def test_a_policy_plays_games_and_is_loaded_once_for_their_spaces():
    asked = []

    def make_policy(observation, action):
        asked.append((observation, action))
        return FunctionPolicy(lambda seen: min(int(seen), 2), observation, action)

    agent = PolicyWorkerAgent(make_policy)
    runtime = InteractiveRuntime(agent)
    game = "pettingzoo/classic/rps_v2"

    def ask(**command):
        return json.loads(runtime.answer(json.dumps(command).encode()))

    for seed in (1, 2):
        init = {"game_name": game, "env_id": game, "player_id": "player_0", "seed": seed}
        assert ask(cmd="init_agent", **init) == {"type": "agent_ready", "player_id": "player_0"}
        for seen in (0, 1, 2, 3):
            reply = ask(cmd="select_action", player_id="player_0", observation=seen)
            assert reply["action"] == min(seen, 2)
    assert asked == [(spaces.Discrete(4), spaces.Discrete(3))]
    runtime.close()


@pytest.mark.parametrize(
    ("worker", "policy", "options", "match"),
    [
        (rl_worker, "gone", {}, "gone: expected a run folder or a model saved by CleanRL"),
        (rl_worker, "{run}", {"env_id": "Pendulum-v1"}, "the observation space Box.*RunPolicy"),
        (
            rl_worker,
            "{run}",
            {"settings": {"greedy": True}},
            "'greedy' is unknown for .* run folder",
        ),
        (rl_worker, "{run}", {"settings": {"best": 1}}, "best: expected true or false, got 1"),
        (rl_worker, "{model}", {"settings": {"best": True}}, "'best' is unknown for .* of CleanRL"),
        (rl_worker, "{model}", {"env_id": "Pendulum-v1"}, "model.pt: a model of ppo.py"),
        (rl_worker, "{text}", {}, "text.pt: expected only weights"),
        (policy_worker, "nothing", {}, "policy 'nothing': expected random, noop, the folder"),
        (policy_worker, "{broken}", {}, "broken.py"),
        (operators_worker, "{broken}:f", {}, "broken.py"),
        (operators_worker, "scripted", {}, "expected random, noop, file.py or file.py:name, got"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(
    runs, tmp_path, worker, policy, options, match
):
    files = {"run": runs[0], "model": tmp_path / "model.pt", "text": tmp_path / "text.pt"}
    files["broken"] = tmp_path / "broken.py"
    saved(files["model"], DiscreteAgent())
    files["text"].write_text("no model")
    files["broken"].write_text("def f(:\n")
    with pytest.raises((ValueError, FileNotFoundError), match=match) as caught:
        loaded_here(worker, policy.format(**files), **options)
    assert "\n" not in str(caught.value)


def test_a_worker_that_cannot_be_loaded_says_so_and_ends():
    for words, said in (
        (["--env-id", "a b"], "environment: ValueError: environment 'a b'"),
        (
            ["--settings", '{"wise": 1}'],
            "policy: ValueError: settings: expected names from best, gr",
        ),
    ):
        driven = run_worker("rl_worker", "--policy", "gone", *words, "--interactive")
        reply = json.loads(driven.stdout)
        assert (reply["type"], driven.returncode) == ("error", 1)
        assert reply["message"].startswith(f"Failed to load {said}")
    alone = run_worker("rl_worker", "--policy", "gone", "--seeds", "0")
    assert (alone.stdout, alone.returncode) == ("", 1)
    said = "Failed to load policy: FileNotFoundError: gone: expected"
    assert alone.stderr.startswith(said)
