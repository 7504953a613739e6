from __future__ import annotations

import subprocess
import sys

import pytest
from playing import script

from parllel.distributed.remote import make
from parllel.envs.pettingzoo_module import pettingzoo_names

TICTACTOE = "pettingzoo/classic/tictactoe_v3"


def first_allowed(observation, configuration):
    """Return the first action that the mask allows."""
    return observation["action_mask"].index(1)


def test_agents_of_a_board_game_take_turns():
    with make(TICTACTOE) as env:
        assert [state["status"] for state in env.state] == ["ACTIVE", "INACTIVE"]
        assert [env.observation(n)["agent"] for n in (0, 1)] == ["player_1", "player_2"]
        env.step([0, None])
        assert [state["status"] for state in env.state] == ["INACTIVE", "ACTIVE"]
        # The place is taken.
        assert env.observation(1)["action_mask"] == [0, 1, 1, 1, 1, 1, 1, 1, 1]
        # 0, 1 and 2 are the first column; by hand, the first player has it after five moves.
        for move in (3, 1, 4, 2):
            env.step([move, move])
        assert [(s["reward"], s["status"]) for s in env.state] == [(1, "DONE"), (-1, "DONE")]
        assert env.state[0]["info"] == {"reward": 1.0, "terminated": True, "truncated": False}


def test_a_move_that_the_mask_forbids_ends_it():
    with make(TICTACTOE) as env:
        steps = env.run([script(4), script(4)])
    assert [(s["action"], s["reward"], s["status"]) for s in steps[-1]] == [
        (0, 0.0, "DONE"),
        (None, None, "INVALID"),
    ]
    assert "action_mask" in steps[-1][1]["info"]["reason"]


def test_a_replay_of_turns_is_rebuilt():
    with make(TICTACTOE) as env:
        env.run([first_allowed, "random"])
        replay = env.to_json()
    with make(TICTACTOE, info=replay["info"], steps=replay["steps"]) as again:
        assert again.steps == replay["steps"]
        assert again.done


def test_all_agents_of_a_parallel_environment_act_at_once():
    name = "mpe2/simple_spread_v3"
    with make(name, {"seed": 2}) as env:
        assert [state["status"] for state in env.state] == ["ACTIVE"] * 3
        assert len(env.observation(0)["observation"]) == 18
        steps = env.run(["random"] * 3)
    assert len(steps) == 26
    assert all(state["status"] == "DONE" for state in steps[-1])
    assert all(state["info"]["truncated"] for state in steps[-1])
    # Its reward is what all share; the sum of those of the steps.
    total = sum(row[0]["info"]["reward"] for row in steps[1:])
    assert steps[-1][0]["reward"] == pytest.approx(total)


def test_others_play_on_without_an_agent_that_fails():
    name = "mpe2/simple_spread_v3"
    with make(name, {"seed": 2}) as env:
        steps = env.run([script(1, OSError("gone")), "random", "random"])
        replay = env.to_json()
        assert len(steps) == 26
        assert [state["status"] for state in steps[2]] == ["ERROR", "ACTIVE", "ACTIVE"]
        assert [state["status"] for state in steps[-1]] == ["ERROR", "DONE", "DONE"]
        assert replay["rewards"][0] is None
        assert replay["rewards"][1] < 0
        # Why stays in each step from then on.
        assert all("gone" in row[0]["info"]["reason"] for row in steps[2:])
    # With the same seed and the same failure it comes out the same.
    with make(name, {"seed": 2}, info=replay["info"], steps=replay["steps"]) as again:
        assert again.steps == replay["steps"]


def test_agents_with_different_spaces_have_their_own_checks():
    with make("mpe2/simple_speaker_listener_v4") as env:
        assert len(env.specification["action"]["anyOf"]) == 2
        # The speaker has three words, the listener five moves.
        row = env.step([3, 4])
        assert [state["status"] for state in row] == ["INVALID", "ACTIVE"]


def test_an_environment_of_both_kinds_is_played_at_once():
    with make("pettingzoo/classic/rps_v2") as env:
        assert [state["status"] for state in env.state] == ["ACTIVE", "ACTIVE"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pettingzoo/classic/nothing_v3", "pettingzoo has no such environment$"),
        (
            "pettingzoo/tictactoe_v3",
            "no such environment; did you mean pettingzoo/classic/tictactoe_v3?",
        ),
        ("pettingzoo/classic/rps_v0", "did you mean pettingzoo/classic/rps_v2?"),
        ("pettingzoo/utils", "pettingzoo has no such environment"),
        ("pettingzoo/test/api_test", "pettingzoo has no such environment"),
        ("pettingzoo/classic/all_modules", "pettingzoo has no such environment"),
        ("mpe2/..os", "mpe2 has no such environment"),
        ("mpe2/.simple_v3", "mpe2 has no such environment"),
        ("pettingzoo/classic.tictactoe_v3", "pettingzoo has no such environment"),
    ],
)
def test_modules_without_an_environment_are_named(name, message):
    with pytest.raises((ValueError, ImportError), match=message):
        make(name)


def test_a_name_of_no_environment_imports_nothing():
    # In a process of its own, as others of this one may have imported anything.
    program = """
import sys
from parllel.distributed.remote import make
for name in sys.argv[1:]:
    before = set(sys.modules)
    try:
        make(name)
    except ValueError:
        pass
    new = {module.partition(".")[0] for module in set(sys.modules) - before}
    print(*new & {"pettingzoo", "mpe2", "antigravity"})
"""
    names = [
        "pettingzoo/test/api_test",
        "pettingzoo/utils/env",
        "mpe2/all_modules",
        "antigravity/x_v0",
    ]
    command = [sys.executable, "-c", program, *names]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "\n" * 4


def test_all_names_of_the_list_are_those_of_the_library():
    from mpe2.all_modules import mpe_environments

    assert pettingzoo_names("mpe2") == sorted(
        f"mpe2/{name.rpartition('/')[2]}" for name in mpe_environments
    )
    assert TICTACTOE in pettingzoo_names("pettingzoo")
    assert pettingzoo_names("os") == []


def test_it_is_drawn_by_playing_it_again():
    with make(TICTACTOE) as env:
        env.step([4, None])
        picture = env.render("rgb_array")
        assert picture.ndim == 3
        env.load(env.steps)
        other = env.render("rgb_array")
    assert (picture == other).all()
