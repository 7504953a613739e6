from __future__ import annotations

import json

import numpy as np
import pytest
from asked_runtime import Deciding
from gymnasium import spaces

from parllel.distributed.operators import Decision
from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime
from parllel.distributed.wire import to_json
from parllel.seeding import Seeds

FOUR = "pettingzoo/classic/connect_four_v3"


def ask(runtime, **command):
    (line,) = runtime.answer(json.dumps(command).encode()).splitlines()
    return json.loads(line)


def begin(runtime, player_id="player_1", **fields):
    return ask(runtime, cmd="init_agent", game_name="g", player_id=player_id, env_id=FOUR, **fields)


def observation_of(space, mask):
    value = space.sample()
    value["action_mask"][:] = mask
    return to_json(space, value), value


def test_a_player_sees_what_its_game_shows_and_says_what_it_decides():
    agent = Deciding([Decision(np.int64(3), "three!", {"column": 3}, 12, 10, 2)])
    runtime = InteractiveRuntime(agent)
    assert begin(runtime, seed=7, id=1) == {
        "type": "agent_ready",
        "id": 1,
        "player_id": "player_1",
    }
    assert agent.seeds == [Seeds(7).integer("policy")]
    ((space, action_space),) = agent.bound
    assert action_space == spaces.Discrete(7)
    values, observation = observation_of(space, 1)
    reply = ask(
        runtime,
        cmd="select_action",
        player_id="player_1",
        observation=values,
        legal_actions=[1, 3],
        info={"more": 1},
        text="a board",
    )
    assert reply.pop("decide_s") >= 0
    assert reply == {
        "type": "action_selected",
        "player_id": "player_1",
        "action": 3,
        "raw": "three!",
        "parsed": {"column": 3},
        "tokens": 12,
        "prompt_tokens": 10,
        "completion_tokens": 2,
    }
    (seen,), (info,) = agent.seen, agent.infos
    np.testing.assert_equal(seen, observation)
    assert info == {
        "more": 1,
        "player_id": "player_1",
        "legal_actions": [1, 3],
        "text": "a board",
    }


@pytest.mark.parametrize(
    ("decided", "sent"),
    [("e2e5", "e2e5"), (99, 99), (None, None), (np.float64(0.5), 0.5), (np.array([1, 2]), [1, 2])],
)
def test_what_is_no_action_of_the_game_is_sent_as_it_is(decided, sent):
    """The game has a rule for it."""
    agent = Deciding([Decision(decided)])
    runtime = InteractiveRuntime(agent)
    begin(runtime)
    values, _ = observation_of(agent.bound[0][0], 1)
    reply = ask(runtime, cmd="select_action", player_id="player_1", observation=values)
    assert (reply["type"], reply["action"]) == ("action_selected", sent)


def test_without_the_name_of_a_game_players_are_given_json_values():
    agent = Deciding([Decision([1])])
    runtime = InteractiveRuntime(agent)
    ask(runtime, cmd="init_agent", game_name="g", player_id="x")
    assert agent.bound == [(None, None)]
    assert agent.seeds == [None]
    reply = ask(runtime, cmd="select_action", player_id="x", observation={"a": [1]})
    assert reply["action"] == [1]
    assert (agent.seen, agent.infos) == ([{"a": [1]}], [{"player_id": "x"}])


def test_a_game_is_made_once_for_all_episodes_of_a_seat(monkeypatch):
    made = []

    def player_spaces(*arguments):
        made.append(arguments)
        return spaces.Discrete(2), spaces.Discrete(2)

    monkeypatch.setattr(
        "parllel.distributed.operators.games.player_spaces.player_spaces", player_spaces
    )
    agent = Deciding()
    runtime = InteractiveRuntime(agent)
    for player in ("player_0", "player_1", "player_0"):
        begin(runtime, player, env_kwargs={"a": 1})
    assert made == [(FOUR, {"a": 1}, "player_0"), (FOUR, {"a": 1}, "player_1")]
    assert len(agent.seeds) == 3


def test_players_of_no_such_game_are_refused_until_a_game_begins():
    runtime = InteractiveRuntime(Deciding([Decision(0)]))
    refused = begin(runtime, "nobody", id="a")
    assert refused["type"] == "error"
    assert (
        "expected one of the players ['player_0', 'player_1'], got 'nobody'" in refused["message"]
    )
    asked = ask(runtime, cmd="select_action", player_id="nobody", observation=1)
    assert asked["message"] == "select_action: send init_agent first"
    begin(runtime)
    other = ask(runtime, cmd="select_action", player_id="player_0", observation=1)
    assert other["message"].endswith(
        "expected player_id 'player_1', as in init_agent, got 'player_0'"
    )


def test_a_persons_choice_comes_with_the_question():
    agent = Deciding()
    agent.takes_actions = True
    runtime = InteractiveRuntime(agent)
    begin(runtime)
    asked = {"cmd": "select_action", "player_id": "player_1", "observation": {}}
    reply = ask(runtime, **asked, action=3)
    assert reply == {"type": "action_selected", "player_id": "player_1", "action": 3}
    refused = ask(runtime, **asked, action=7)
    assert refused["message"].startswith("select_action: action: ")
    assert "expected" in refused["message"]
    assert agent.seen == []


def test_an_operator_that_decides_itself_takes_no_choice():
    runtime = InteractiveRuntime(Deciding())
    begin(runtime)
    reply = ask(runtime, cmd="select_action", player_id="player_1", observation={}, action=3)
    assert reply["message"] == (
        "select_action: action: expected none, because this operator decides itself"
    )
