"""An operator is checked when it is described, and says in one sentence what is wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("magic", {}, "operator_type: expected one of baseline, chess, human, .*; got 'magic'"),
        (None, {}, "operator_type: expected one of"),
        ("baseline", {}, "policy: 'baseline' requires a policy, got None"),
        ("rl", {"policy": ""}, "policy: expected non-empty text"),
        ("rl", {"policy": len}, "policy: expected text or a path, .* got builtin_function"),
        ("human", {"policy": "random"}, "policy: expected None, because 'human' has no policy"),
        ("baseline", {"policy": "runs/x"}, "expected random, noop or file.py:name for a baseline"),
        (
            "baseline",
            {"policy": "scripted"},
            "expected random, noop or file.py:name for a baseline",
        ),
        ("policy", {"policy": "http://a:b@host/"}, "policy: the URL contains a password"),
        ("program", {}, "worker: expected the words of a command line, .* got None"),
        ("program", {"worker": "python x.py"}, "worker: expected the words of a command line"),
        ("program", {"worker": ["", "x"]}, "worker: expected a program and its arguments"),
        (
            "human",
            {"worker": ["x"]},
            "worker: expected operator_type='program' with a worker, got 'human'",
        ),
        ("llm", {"settings": {"api_key": "sk-1"}}, "settings: 'api_key' would be visible"),
        (
            "llm",
            {"settings": {"api_key_env": "sk 1"}},
            "api_key_env: expected the name of an environment variable$",
        ),
        (
            "llm",
            {"settings": {"base_url": "http://u:p@x/"}},
            "base_url: the URL contains a password",
        ),
        ("llm", {"settings": {"t": float("nan")}}, "settings: expected only JSON values"),
        ("llm", {"settings": {"t": {1, 2}}}, "settings: expected only JSON values"),
        ("human", {"env_kwargs": [1]}, "env_kwargs: expected a mapping of names"),
        ("human", {"env_id": ""}, "env_id: expected the id of an environment"),
        ("human", {"max_steps": 0}, "max_steps: expected None or at least 1, got 0"),
        ("human", {"max_steps": True}, "max_steps: expected None or at least 1, got True"),
        ("human", {"variables": {"A=B": "x"}}, "variables: expected the name of a variable"),
        ("human", {"variables": {"A": 1}}, "variables: A: expected text"),
        ("human", {"passed": "A"}, "passed: expected a list of names"),
    ],
)
def test_what_no_operator_can_have(kind: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^operator 'one': .*{said}") as raised:
        OperatorConfig(kind, "one", **given)
    assert "\n" not in str(raised.value)
    assert "sk-1" not in str(raised.value).replace("'api_key'", "")
    assert "sk 1" not in str(raised.value)


@pytest.mark.parametrize("operator_id", ["", "a b", "a/b", "..", ".", "x" * 65, None, "ö"])
def test_an_id_can_be_part_of_file_names(operator_id: Any) -> None:
    with pytest.raises(ValueError, match="operator_id: expected 1 to 64 letters"):
        OperatorConfig("human", operator_id)


def test_what_is_given_is_copied_and_secrets_are_not_shown() -> None:
    kwargs, variables = {"size": 5}, {"KEY": "sk-1"}
    config = OperatorConfig(
        "human", "one", "CartPole-v1", env_kwargs=kwargs, variables=variables, passed=["OMP_*"]
    )
    kwargs["size"] = variables["KEY"] = 6  # type: ignore[assignment]
    assert (config.env_kwargs, config.variables) == ({"size": 5}, {"KEY": "sk-1"})
    assert "sk-1" not in repr(config) + json.dumps(config.as_json())
    assert config.as_json()["variables"] == ["KEY"]


def test_a_game_has_an_operator_for_each_player() -> None:
    one, two = (OperatorConfig("policy", name, policy="random") for name in ("one", "two"))
    game = MultiAgentConfig(
        "game", "pettingzoo/classic/chess_v6", {"player_0": one, "player_1": two}
    )
    assert list(game.players) == ["player_0", "player_1"]
    assert json.loads(json.dumps(game.as_json()))["players"]["player_1"]["operator_id"] == "two"
    other = OperatorConfig("policy", "three", "CartPole-v1", policy="random")
    for players, said in (
        ({"a": one, "b": one}, "players 'a' and 'b' both have the operator_id 'one'"),
        (
            {"a": other},
            "player 'a': expected no env_id, or 'x', because all players play the same game",
        ),
        ({"a": "random"}, "player 'a': expected an OperatorConfig, got str"),
        ({}, "players: expected a mapping of players to operators"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^game 'g': {re.escape(said)}"):
            MultiAgentConfig("g", "x", players)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"game 'g': illegal: expected one of .* got 'shrug'"):
        MultiAgentConfig("g", "x", {"a": one}, illegal="shrug")
    with pytest.raises(ValueError, match="game 'g': seats: expected fixed or rotate, got 'swap'"):
        MultiAgentConfig("g", "x", {"a": one}, seats="swap")
