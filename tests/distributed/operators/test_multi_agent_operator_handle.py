"""Players are asked at the same time, and what one of them does is that player's alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from launching import HOSTILE, LONG_S, Hostile

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig, OperatorLauncher
from parllel.distributed.operators.games.multi_agent_operator_handle import MultiAgentOperatorHandle
from parllel.distributed.operators.operator_process_handle import await_replies
from parllel.errors import WrongStateError
from parllel.system.processes.process_table import process_runs

Game = Callable[..., MultiAgentOperatorHandle]
NAMES = ("a", "b", "c")


@pytest.fixture
def game(launcher: OperatorLauncher) -> Game:
    """A function that launches a game of three hostile players."""

    def launch(*words: str) -> MultiAgentOperatorHandle:
        players = {
            name: OperatorConfig("program", f"of_{name}", worker=[*HOSTILE, *words])
            for name in NAMES
        }
        return launcher.launch_multiagent_operator(MultiAgentConfig("game", "some_game", players))

    return launch


def test_an_episode_of_all_players(game: Game) -> None:
    handle = game()
    assert list(handle.player_handles) == list(NAMES)
    assert {own.run_id for own in handle.player_handles.values()} == {
        f"op_game_of_{name}" for name in NAMES
    }
    handle.send_init_agents(3)
    replies = handle.poll_all_responses(LONG_S)
    assert list(replies) == list(NAMES)
    for name, reply in replies.items():
        assert reply.pop("latency_s") > 0
        assert reply == {"type": "agent_ready", "player_id": name}
    for action in (1, 2):
        for name in NAMES:
            handle.send_select_action(name, None, legal_actions=[0, 1], info={}, text="go")
        replies = handle.poll_all_responses(LONG_S)
        assert [reply["action"] for reply in replies.values()] == [action] * 3
    assert handle.poll_all_responses(0.0) == {}
    with pytest.raises(ValueError, match=r"game 'game': player_id: expected one of .* got 'd'"):
        handle.send_select_action("d", None)


def test_players_are_asked_at_the_same_time(game: Game) -> None:
    handle = game()
    handle.send_init_agents()
    handle.poll_all_responses(LONG_S)
    began = time.monotonic()
    for name in NAMES:
        handle.send_select_action(name, [["sleep", 3.0]])
    replies = handle.poll_all_responses(LONG_S)
    assert [reply["type"] for reply in replies.values()] == ["action_selected"] * 3
    assert time.monotonic() - began < 8.0  # one after the other they would sleep for 9 s
    assert all(3.0 <= reply["latency_s"] < 8.0 for reply in replies.values())


def test_each_failure_is_one_players(game: Game) -> None:
    handle = game()
    handle.send_init_agents()
    handle.poll_all_responses(LONG_S)
    handle.send_select_action("a", [["sleep", 0.5]])
    handle.send_select_action("b", [["exit", 2]])
    handle.send_select_action("c", [])
    replies = handle.poll_all_responses(0.25)
    assert [replies[name]["type"] for name in NAMES] == ["timeout", "died", "action_selected"]
    assert "operator 'of_a': player 'a' did not answer within 0.25 s" in replies["a"]["message"]
    assert "operator 'of_b': process" in replies["b"]["message"]
    assert "exited with code 2" in replies["b"]["message"]
    assert (
        handle.poll_all_responses(LONG_S)["a"]["type"] == "action_selected"
    )  # late, but asked for
    handle.send_select_action("b", [])
    assert handle.poll_all_responses(LONG_S)["b"]["type"] == "died"
    handle.send_select_action("c", [["say", "garbage"]])
    assert handle.poll_all_responses(LONG_S)["c"]["type"] == "error"
    handle.send_select_action(
        "c", [["tell", {"type": "action_selected", "player_id": "a", "action": 1}]]
    )
    error = handle.poll_all_responses(LONG_S)["c"]
    assert error["type"] == "error"
    assert "answered for player 'a', and was asked for 'c'" in error["message"]
    handle.send_select_action("c", [])
    assert handle.poll_all_responses(LONG_S)["c"]["type"] == "action_selected"


def test_a_death_is_noticed_while_others_are_awaited(game: Game) -> None:
    handle = game()
    handle.send_select_action("a", [["sleep", 60]])
    handle.send_select_action("c", ["fork", "kill"])
    (first,) = await_replies(list(handle.player_handles.values()), LONG_S)
    assert first is handle.player_handles["c"]
    assert await_replies([handle.player_handles["a"]], 0.01) == []
    assert await_replies([], 0.01) == []


def test_the_end_of_a_game(game: Game, launcher: OperatorLauncher) -> None:
    handle = game("--stubborn")
    pids = [own.pid for own in handle.player_handles.values()]
    with pytest.raises(WrongStateError, match="operator 'of_a' is already running"):
        launcher.launch_multiagent_operator(handle.config)
    handle.send_select_action("a", ["deaf"])
    handle.end(0.1)
    handle.close()
    assert not any(process_runs(pid) for pid in pids)
    assert not handle.is_running
    handle.send_select_action("a", [])
    assert handle.poll_all_responses(0.0)["a"]["type"] == "died"


def test_none_is_started_if_one_cannot_be(launcher: OperatorLauncher, hostile: Hostile) -> None:
    first = OperatorConfig("program", "one", worker=HOSTILE)
    second = OperatorConfig("program", "two", worker=["/no/worker"])
    game = MultiAgentConfig("game", "some_game", {"a": first, "b": second})
    with pytest.raises(FileNotFoundError, match=r"operator 'two': worker: program .* not found"):
        launcher.launch_multiagent_operator(game)
    hostile(operator_id="one")  # which is free
