from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from parllel.cages import Cage, ProcessCage
from parllel.envs.states import missing_env_state
from parllel.errors import notes_of
from parllel.policies import OpponentEnv, Policy
from parllel.testing.dummy_parallel_env import (
    CountingParallelEnv,
    counting_observation,
    counting_reward,
)
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv


class Recorder(Policy):
    """Keep what is asked, and play a constant."""

    def __init__(self, action):
        self.action = np.asarray(action)
        self.seen, self.seeds, self.closed = [], [], 0

    def act(self, observation, env_indices):
        ((number),) = env_indices
        self.seen.append((number, observation[0].tolist()))
        return self.action[np.newaxis]

    def reset(self, env_indices=None, seeds=None):
        self.seeds.append((*env_indices, *seeds))

    def close(self):
        self.closed += 1


LIVES = {"ant": 2, "bee": 4, "cat": 6}  # bees act in a Box, the others choose one of 3
ACTIONS = {"ant": 2, "bee": np.float32([0.5, -0.25]), "cat": 1}


def counting(learner, ends=None, **lives):
    names = [name for name in LIVES if name != learner]
    policies = {name: Recorder(ACTIONS[name]) for name in names}
    return OpponentEnv(CountingParallelEnv({**LIVES, **lives}, ends), learner, policies)


@pytest.mark.parametrize(
    ("learner", "ends"),
    [("ant", {}), ("bee", {"bee": "truncated"}), ("cat", {"ant": "truncated"})],
)
def test_an_episode_is_the_learners(learner, ends):
    env = counting(learner, ends)
    index, life = list(LIVES).index(learner), LIVES[learner]
    assert env.observation_space == env.parallel_env.observation_space(learner)
    assert env.action_space == env.parallel_env.action_space(learner)
    for _ in range(2):
        observation, info = env.reset(seed=1)
        assert info == {"step": 0}
        for step in range(1, life + 1):
            np.testing.assert_array_equal(observation, counting_observation(index, step - 1))
            observation, reward, terminated, truncated, info = env.step(ACTIONS[learner])
            assert reward == counting_reward(index, step, ACTIONS[learner])
            assert info == {"step": step}
            kind = ends.get(learner, "terminated")
            over = step == life
            assert (terminated, truncated) == (
                over and kind == "terminated",
                over and kind == "truncated",
            )
            # Those whose part is over are left out; the others go on without them.
            there = {name for name, last in LIVES.items() if step <= last}
            assert set(env.parallel_env.actions[-1]) == there
        np.testing.assert_array_equal(observation, counting_observation(index, life))
    for number, (name, policy) in enumerate(env.policies.items()):
        i = list(LIVES).index(name)
        steps = range(min(life, LIVES[name]))
        # Before the step, as the learner sees it; and never after its own end.
        expected = [(number, counting_observation(i, step).tolist()) for step in steps]
        assert policy.seen == expected * 2


def test_opponents_move_at_the_same_time_as_the_learner():
    """Against a plain loop of game and policy, whose moves are those of the round before."""
    env = OpponentEnv(RockPaperScissorsEnv(), "blue", {"red": FrequencyPolicy(drawn=0.3)})
    game, policy, rewards = RockPaperScissorsEnv(), FrequencyPolicy(drawn=0.3), []
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        observations, _ = game.reset(seed=seed)
        policy.reset([0], [env_seed(env, seed)])
        over = False
        while not over:
            np.testing.assert_array_equal(seen, observations["blue"])
            move = int(seen[3:].argmax() + 1) % 3
            seen, reward, over, _, _ = env.step(move)
            red = int(policy.act_one(observations["red"]))
            observations, expected, ends, _, _ = game.step({"red": red, "blue": move})
            assert (reward, over) == (expected["blue"], ends["blue"])
            rewards.append(reward)
    # The learner played what beats the last move.
    assert sum(rewards) > 10


def env_seed(env, seed):
    """Return the seed that an opponent was given for an episode, by a recorder in its place."""
    other = OpponentEnv(RockPaperScissorsEnv(), "blue", {"red": Recorder(0)})
    other.reset(seed=seed)
    return other.policies["red"].seeds[-1][-1]


def test_seeds_of_opponents_follow_from_that_of_the_environment_by_name():
    def seeds_of(env, seeds):
        for seed in seeds:
            env.reset(seed=seed)
        return {name: [given for _, given in p.seeds] for name, p in env.policies.items()}

    found = seeds_of(counting("bee"), [3, None, None])
    assert seeds_of(counting("bee"), [3, None, None]) == found
    # Others, or another learner, change nothing for those who play in both.
    assert seeds_of(counting("ant"), [3, None, None])["cat"] == found["cat"]
    fewer = OpponentEnv(CountingParallelEnv({"bee": 3, "cat": 3}), "bee", {"cat": Recorder(0)})
    assert seeds_of(fewer, [3, None, None])["cat"] == found["cat"]
    assert len({*found["ant"], *found["cat"]}) == 6
    assert seeds_of(counting("bee"), [4])["cat"] != found["cat"][:1]


def test_a_policy_may_play_several_agents():
    policy = Recorder([0, 0])
    world = CountingParallelEnv({"x": 3, "a": 3, "y": 3, "b": 3})
    env = OpponentEnv(world, "x", {"a": policy, "y": Recorder(0), "b": policy})
    env.reset(seed=0)
    env.step(0)
    assert [number for number, _ in policy.seen] == [0, 2]
    assert len({seed for _, seed in policy.seeds}) == 2
    env.close()
    assert (policy.closed, env.policies["y"].closed) == (1, 1)


def test_gymnasium_finds_nothing_wrong():
    env = OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": FrequencyPolicy()})
    check_env(env, skip_render_check=True)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("learner", "opponents", "message"),
    [
        ("dog", {}, r"learner: expected one of \['ant', 'bee', 'cat'\], got 'dog'"),
        ("ant", {"bee": 0}, r"expected policies for \['bee', 'cat'\], got policies for \['bee'\]"),
        ("ant", {"bee": 0, "cat": 0, "ant": 0}, r"got policies for \['ant', 'bee', 'cat'\]"),
    ],
)
def test_every_other_agent_has_a_policy(learner, opponents, message):
    policies = {name: Recorder(action) for name, action in opponents.items()}
    with pytest.raises(ValueError, match=message):
        OpponentEnv(CountingParallelEnv(LIVES), learner, policies)


def game(policy):
    return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": policy})


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"action_space": spaces.Discrete(4)}, r"action space Discrete\(3\), got one for Disc"),
        ({"observation_space": spaces.Discrete(4)}, "observation space Box.*, got one for Disc"),
    ],
)
def test_policies_for_other_spaces_are_refused(named, message):
    with pytest.raises(ValueError, match=f"opponent 'blue': expected a policy for the {message}"):
        game(FrequencyPolicy(**named))


def test_a_policy_plays_in_one_environment():
    policy = FrequencyPolicy()
    first = game(policy)
    with pytest.raises(
        ValueError,
        match="opponent 'blue': this FrequencyPolicy already plays in another OpponentEnv",
    ):
        game(policy)
    first.close()
    second = game(policy)
    # Not closed, but gone.
    del second
    gc.collect()
    game(policy)


def test_specifications_are_resolved_by_the_spaces_of_the_agent():
    env = OpponentEnv(CountingParallelEnv(LIVES), "ant", {"bee": "random", "cat": 2})
    env.reset(seed=0)
    env.step(0)
    (actions,) = env.parallel_env.actions
    assert env.parallel_env.action_space("bee").contains(actions["bee"])
    assert actions["cat"] == 2


def test_an_object_of_a_file_plays_in_one_environment(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from parllel.testing import FrequencyPolicy\nmine = FrequencyPolicy()\n")
    first = game(str(file))
    with pytest.raises(ValueError, match="plays in another OpponentEnv"):
        game(str(file))
    # It is still that of the first.
    assert first.policies["blue"].closed == 0
    first.close()


class Counted(FrequencyPolicy):
    """Count what was made and closed."""

    made: list[Counted] = []

    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.made.append(self)


@pytest.mark.parametrize(("spec", "error"), [("nothing", ValueError), (7, ValueError)])
def test_a_specification_that_means_nothing_is_refused(spec, error):
    Counted.made.clear()
    given = FrequencyPolicy()
    world = CountingParallelEnv({"a": 2, "b": 2, "c": 2, "d": 2})
    with pytest.raises(error, match=str(spec)) as caught:
        OpponentEnv(world, "a", {"b": given, "c": Counted, "d": spec})
    assert "in the policy of opponent 'd', during policy_of" in notes_of(caught.value)
    # Those that were made for it are closed, the others belong to the caller.
    assert ([made.closed for made in Counted.made], given.closed) == ([1], 0)


class Failing(Recorder):
    """Raise, or choose what is none of the moves."""

    def __init__(self, when, action=0):
        super().__init__(action)
        self.when = when

    def _fail(self, when):
        if when == self.when:
            raise ZeroDivisionError("no idea")

    def act(self, observation, env_indices):
        self._fail("act")
        return super().act(observation, env_indices)

    def reset(self, env_indices=None, seeds=None):
        self._fail("reset")

    def close(self):
        super().close()
        self._fail("close")


@pytest.mark.parametrize("when", ["act", "reset"])
@pytest.mark.parametrize("cls", [Cage, partial(ProcessCage, start_method="fork")])
def test_errors_of_an_opponent_say_whose_they_are(cls, when):
    cage = cls(lambda: game(Failing(when)), seed=0)

    def play():
        cage.reset()
        cage.step(0)

    with cage, pytest.raises(ZeroDivisionError, match="no idea") as caught:
        play()
    assert f"in the policy of opponent 'blue', during {when}" in notes_of(caught.value)


@pytest.mark.parametrize("action", [[1, 2], 0.5, {"a": 1}, "rock"])
def test_actions_that_are_none_are_refused(action):
    env = game(Failing(None))
    env.policies["blue"].act_one = lambda *_: action
    env.reset()
    with pytest.raises(ValueError, match=r"expected an action of Discrete\(3\), got") as caught:
        env.step(0)
    assert "in the policy of opponent 'blue', during act" in notes_of(caught.value)


def test_closing_closes_everything_once():
    world = CountingParallelEnv(LIVES)
    policies = {"bee": Failing("close"), "cat": Recorder(0)}
    env = OpponentEnv(world, "ant", policies)
    with pytest.raises(ZeroDivisionError, match="no idea"):
        env.close()
    env.close()
    assert [world.closed, *(policy.closed for policy in policies.values())] == [1, 1, 1]


def test_a_game_without_a_state_has_none():
    message = missing_env_state(counting("ant"))
    assert message.startswith("OpponentEnv: ParallelEnvAdapter: the state of the CountingParallel")
