from __future__ import annotations

import pytest
from nim import Nim
from playing import always, played, script

from parllel.distributed.remote import Agent, AgentFailure, Game, make, register
from parllel.errors import WrongStateError


def test_a_game_of_a_user_is_played():
    with make("nim", {"sticks": 4}) as env:
        assert env.specification["version"] == "1.0.0"
        steps = env.run([always(3), "one"])
        assert env.render("ansi") == "\n"
    assert played(steps) == [
        [(1, 0, "ACTIVE"), (1, 0, "INACTIVE")],
        [(3, 0, "INACTIVE"), (1, 0, "ACTIVE")],
        [(1, 1, "DONE"), (1, -1, "DONE")],
    ]
    assert [row[0]["observation"]["sticks"] for row in steps] == [4, 1, 0]


def test_none_plays_the_default_of_the_schema():
    with make("nim", {"sticks": 2}) as env:
        steps = env.run([lambda observation, configuration: None, None])
    assert played(steps)[1:] == [
        [(1, 0, "INACTIVE"), (1, 0, "ACTIVE")],
        [(1, 1, "DONE"), (1, -1, "DONE")],
    ]
    # The second had no agent, and so no log.
    assert set(env.logs[1][0]) == {"duration", "stdout", "stderr"}
    assert env.logs[2] == [{}, {}]


@pytest.mark.parametrize("status", ["ERROR", "INVALID", "TIMEOUT"])
def test_a_failure_ends_a_game_of_two(status):
    with make("nim") as env:
        row = env.step([AgentFailure(status, "for a reason"), None])
        assert env.done
    assert played([row]) == [[(None, None, status), (1, 0, "DONE")]]
    assert row[0]["info"] == {"reason": "for a reason"}
    assert row[1]["info"] == {}


def test_of_three_the_others_play_on():
    with make("nim", {"sticks": 6}) as env:
        steps = env.run([always(2), script(9), always(1)])
    # 6 - 2, the second fails, - 1, - 2, - 1: the third takes the last one and loses.
    assert played(steps)[2] == [(1, 0, "INACTIVE"), (None, None, "INVALID"), (1, 0, "ACTIVE")]
    assert played(steps)[-1] == [(1, 1, "DONE"), (None, None, "INVALID"), (1, -1, "DONE")]
    assert [row[0]["observation"]["sticks"] for row in steps] == [6, 4, 4, 3, 1, 0]


def test_a_move_against_the_rules_keeps_its_action():
    with make("nim", {"sticks": 2}) as env:
        row = env.step([3, None])
    assert played([row]) == [[(3, None, "INVALID"), (1, 0, "DONE")]]
    assert row[0]["info"]["reason"] == "there are only 2"


def test_actions_of_others_than_the_active_are_not_looked_at():
    with make("nim") as env:
        row = env.step([1, "nonsense"])
    assert played([row]) == [[(1, 0, "INACTIVE"), (1, 0, "ACTIVE")]]


def test_every_state_is_in_memory_of_its_own():
    with make("nim") as env:
        first = env.state
        first[0]["info"]["mine"] = 1
        env.observation(0)["sticks"] = 100
        env.step([1, None])
        assert [row[0]["observation"]["sticks"] for row in env.steps] == [7, 6]
        assert env.state[0]["info"] == {}


def test_steps_after_the_end_and_of_another_length_are_refused():
    with make("nim", {"sticks": 1}) as env:
        with pytest.raises(ValueError, match="nim: expected 2 actions, got 3"):
            env.step([1, 1, 1])
        env.step([1, None])
        with pytest.raises(WrongStateError, match="nim: the episode is over; call reset"):
            env.step([1, None])
        env.reset(3)
        assert len(env.state) == 3
        assert not env.done


@pytest.mark.parametrize(
    ("agents", "error", "message"),
    [
        (["one"], ValueError, "nim: expected 2 or 3 agents, got 1"),
        ("one", TypeError, "agents: expected a list of agents, got 'one'"),
    ],
)
def test_agents_that_cannot_play_are_refused(agents, error, message):
    with make("nim") as env, pytest.raises(error, match=message):
        env.run(agents)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"sticks": 0}, r"nim: configuration.sticks: 0 is less than the minimum of 1"),
        ({"sticks": "x"}, r"nim: configuration.sticks: 'x' is not of type 'integer'"),
        ({"episodeSteps": 10**9}, r"nim: configuration.episodeSteps: .* greater than the maximum"),
        ({"actTimeout": -1}, r"nim: configuration.actTimeout: -1 is less"),
        ({"other": {1, 2}}, r"expected JSON values.*set"),
    ],
)
def test_a_configuration_is_checked(configuration, message):
    with pytest.raises(ValueError, match=message):
        make("nim", configuration)


def test_what_the_specification_does_not_know_stays_in_the_configuration():
    with make("nim", {"tournament": "spring"}) as env:
        assert env.configuration["tournament"] == "spring"
        assert env.configuration["sticks"] == 7
        assert env.configuration["runTimeout"] == 1200


def test_an_agent_is_used_as_it_is_and_others_end_with_the_run():
    with make("nim", {"sticks": 2}) as env:
        mine = Agent(always(1), env)
        made = env.initialize_agents([mine, None, "one"])
        assert made[0] is mine
        assert made[1] is None
        closed = []
        mine.close = lambda: closed.append("mine")  # type: ignore[method-assign]
        env.run([mine, "one"])
        made[2].close = lambda: closed.append("made")  # type: ignore[method-assign]
    assert closed == ["made"]


def test_an_error_of_the_game_is_raised_and_says_where():
    class Broken(Nim):
        def step(self, position):
            raise ZeroDivisionError("of the rules")

    register("broken", Broken)
    with make("broken") as env:
        with pytest.raises(ZeroDivisionError, match="of the rules") as caught:
            env.step([1, None])
        assert caught.value.__notes__ == ["in step 1 of nim"]
        with pytest.raises(WrongStateError, match="the game has raised an error; call reset"):
            env.step([1, None])
        env.reset()
        assert len(env.steps) == 1


def test_an_episode_goes_on_from_any_state():
    with make("nim") as env:
        env.step([3, None])
        replay = env.to_json()
    with make("nim", steps=[replay["steps"][-1]]) as env:
        assert env.step([None, 2])[0]["observation"] == {
            "remainingOverageTime": 60,
            "sticks": 2,
            "step": 2,
        }
    by_hand = [{"observation": {"sticks": 1, "step": 4}}, {"status": "INACTIVE"}]
    with make("nim", {"agentTimeout": 9}, steps=[by_hand]) as env:
        env.run(["one", "one"])
        assert env.to_json()["rewards"] == [-1, 1]
        assert env.state[1]["observation"]["remainingOverageTime"] == 9
    with make("nim", steps=replay["steps"], logs=[[], [{"duration": 1.5}, {}]]) as env:
        assert len(env.steps) == 2
        assert env.logs[1][0] == {"duration": 1.5}
        env.run([always(3), always(3)])
        assert env.done


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([[]], r"nim: steps\[0\]: expected a list of the states of 2 or 3 agents"),
        (
            [[1, 2]],
            r"nim: steps\[0\]: expected the state of each agent to be a JSON object, got int",
        ),
        ([[{}, {}]], r"nim: steps\[0\]: the observation of the first agent lacks"),
        (
            [[{"observation": {"sticks": -1, "step": 0}}, {}]],
            r"nim: steps\[0\]\[0\].observation.sticks: -1 is less than the minimum",
        ),
        (
            [[{"observation": {"sticks": 1, "step": 0}, "status": "WON"}, {}]],
            r"nim: steps\[0\]\[0\].status: 'WON' is not one of",
        ),
        (
            [[{"observation": {"sticks": 1, "step": 0}}] * 2, [{"observation": {}}] * 3],
            "and the same number of agents in all steps",
        ),
    ],
)
def test_steps_from_elsewhere_are_checked(steps, message):
    with pytest.raises(ValueError, match=message):
        make("nim", steps=steps)


def test_a_state_that_the_schema_allows_and_the_game_does_not():
    state = {"observation": {"board": [0] * 41, "step": 0, "mark": 1}}
    with pytest.raises(ValueError, match=r"connectx: .*board: expected 42 cells .*, got 41"):
        make("connectx", steps=[[state, {"observation": {"mark": 2}, "status": "INACTIVE"}]])


def test_only_modes_that_there_are():
    with make("nim") as env:
        with pytest.raises(ValueError, match="expected json, ansi, html or rgb_array, got 'png'"):
            env.render("png")
        with pytest.raises(ValueError, match="nim: expected a game that draws pixels"):
            env.render("rgb_array")


def test_a_game_without_rules_says_so():
    class Empty(Game):
        specification = {"name": "empty", "agents": [1]}

    register("empty", Empty)
    with make("empty") as env, pytest.raises(NotImplementedError):
        env.step([1])
