"""REST: what reaches the board, and what is refused before or by it."""

from __future__ import annotations

import pytest
from drawn_env import make
from recorded import episodes, write_experiment
from scripted_board import WRONG_MOMENT

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig
from parllel.distributed.operators.board.board import UnknownCardError
from parllel.errors import ClosedError
from parllel.runs import RunFolder

RANDOM = {
    "operator_type": "baseline",
    "operator_id": "a",
    "env_id": "CartPole-v1",
    "policy": "random",
}
GAME = {
    "operator_id": "g",
    "env_id": "pettingzoo/classic/rps_v2",
    "players": {
        "player_0": {**RANDOM, "operator_id": "b", "env_id": None},
        "player_1": {**RANDOM, "operator_id": "c", "env_id": None},
    },
}


@pytest.mark.parametrize(
    ("name", "body", "asked"),
    [
        ("remove", {"card": "a"}, ("remove", ("a",))),
        ("restart", {"card": "a"}, ("restart", ("a",))),
        ("reset", {}, ("reset", ())),
        ("reset", {"seed": None, "cards": None}, ("reset", ())),
        ("reset", {"seed": 3, "cards": ["a", "b"]}, ("reset", {"seed": 3, "cards": ["a", "b"]})),
        ("step", {}, ("step", ())),
        ("step", {"cards": []}, ("step", {"cards": []})),
        ("play", {"autoplay": True}, ("play", {"autoplay": True})),
        ("stop", {}, ("stop", ())),
        ("speed", {"steps_per_s": 2.5}, ("set_speed", (2.5,))),
        ("speed", {"steps_per_s": None}, ("set_speed", (None,))),
        ("act", {"card": "a", "number": 5, "action": None}, ("act", ("a", 5, None))),
        ("act", {"card": "a", "number": 5, "action": [0.5]}, ("act", ("a", 5, [0.5]))),
        ("watch", {"script": "s.py"}, ("watch", ("s.py",))),
        ("unwatch", {}, ("unwatch", ())),
    ],
)
def test_a_wish_reaches_the_board_and_returns_its_state(opened, board, name, body, asked):
    served = opened(board)
    reply = served.rest.post(f"/api/{name}", json=body)
    assert (reply.status_code, reply.json()) == (200, board.snapshot())
    assert board.asked == [asked]


def test_operators_and_games_are_launched_by_their_fields(opened, board):
    served = opened(board)
    assert served.rest.post("/api/cards", json={"operator": RANDOM}).status_code == 200
    assert served.rest.post("/api/cards", json={"game": GAME}).status_code == 200
    (_, (one,)), (_, (game,)) = board.asked
    assert one == OperatorConfig("baseline", "a", "CartPole-v1", policy="random")
    assert isinstance(game, MultiAgentConfig)
    assert list(game.players) == ["player_0", "player_1"]


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("remove", {}, "card: expected text, got none"),
        ("remove", {"card": 3}, "card: expected text, got 3"),
        ("remove", {"card": None}, "card: expected text, got None"),
        ("reset", {"seed": 1.5}, "seed: expected an integer, got 1.5"),
        ("reset", {"seed": True}, "seed: expected an integer, got True"),
        ("step", {"cards": "a"}, "cards: expected a list of ids, got 'a'"),
        ("step", {"cards": [1]}, "cards: expected a list of ids, got [1]"),
        ("stop", {"now": 1}, "unknown field 'now'; expected no fields"),
        ("stop", [], "expected an object with no fields, got []"),
        ("play", {"autoplay": 1}, "autoplay: expected a boolean, got 1"),
        ("speed", {"steps_per_s": "2"}, "steps_per_s: expected a number, got '2'"),
        ("act", {"card": "a", "number": 1}, "action: expected any value, got none"),
        ("cards", {}, "expected either 'operator' or 'game'"),
        (
            "cards",
            {"operator": RANDOM, "game": GAME},
            "expected either 'operator' or 'game'",
        ),
        ("cards", {"operator": []}, "operator: expected an object, got []"),
        ("cards", {"operator": GAME}, "operator: expected no 'players'"),
        ("cards", {"game": RANDOM}, "game: expected 'players'"),
        (
            "cards",
            {"game": {**GAME, "players": {"player_0": 1}}},
            "request: operator 'g': expected the fields of an operator, got 1",
        ),
        (
            "cards",
            {"operator": {**RANDOM, "polcy": "x"}},
            "request: operator 'a': unknown name 'polcy'; did you mean 'policy'?",
        ),
    ],
)
def test_wrong_fields_are_refused_in_one_sentence(opened, board, name, body, said):
    reply = opened(board).rest.post(f"/api/{name}", json=body)
    assert (reply.status_code, reply.json()) == (400, {"error": said})
    assert not board.asked


def test_the_script_of_a_run_elsewhere_is_executed_for_those_who_trust_it(
    opened, board, tmp_path, monkeypatch
):
    folder = RunFolder(tmp_path / "runs", "trained")
    folder.write_record(make, {})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    operator = {**RANDOM, "operator_type": "rl", "policy": str(folder.path)}
    refused = opened(board).rest.post("/api/cards", json={"operator": operator})
    assert refused.status_code == 400
    assert "give --trust" in refused.json()["error"]
    assert not board.asked
    taken = opened(board, trusted=True).rest.post("/api/cards", json={"operator": operator})
    assert taken.status_code == 200
    assert [name for name, _ in board.asked] == ["launch"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownCardError("there is no card 'a'"), 404),
        (WRONG_MOMENT, 409),
        (ClosedError("the board has been closed"), 503),
        (ValueError("seed: expected at least 0,\n got -1"), 400),
        (TypeError("no"), 400),
        (FileNotFoundError(2, "there is no file"), 400),
        (ImportError("needs chess"), 400),
    ],
)
def test_what_the_board_refuses_is_said(opened, board, error, status):
    served = opened(board)
    board.errors["step"] = error
    reply = served.rest.post("/api/step", json={})
    assert reply.status_code == status
    assert reply.json()["error"] in str(error).replace("\n", "")
    assert served.rest.post("/api/step", json={}).status_code == 200


def test_frames_are_pictures(opened, board):
    served = opened(board)
    board.add_card("a")
    assert served.rest.get("/api/frame?card=a").status_code == 404
    board.draw("a", 7)
    reply = served.rest.get("/api/frame?card=a")
    assert reply.headers["content-type"] == "image/png"
    assert reply.content == (7).to_bytes(4, "big") * 25
    assert served.rest.get("/api/frame?card=b").status_code == 404
    for query in ("", "?card=a&x=1", "?card=a&card=a"):
        assert served.rest.get(f"/api/frame{query}").status_code == 400


def test_a_reward_that_is_no_number_is_null(opened, board):
    served = opened(board)
    board.add_card("a")
    board.reward = float("nan")
    assert served.rest.get("/api/state").json()["cards"][0]["reward"] is None


def test_a_state_without_a_token_is_not_shown(opened, board):
    served = opened(board)
    del served.rest.headers["Authorization"]
    for path in ("/", "/api/state", "/api/frame?card=a", "/api/kinds"):
        assert served.rest.get(path).status_code == 401
    assert served.rest.post("/api/stop", json={}).status_code == 401
    assert not board.asked


def test_the_token_is_in_the_folder_and_stays(opened, board):
    first = opened(board)
    path = board.folder / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() == first.token
    first.dashboard.close()
    assert opened(board).token == first.token


def test_a_token_that_others_can_read_is_refused(opened, board):
    (board.folder / "token").write_text("a-token-of-some-length\n")
    (board.folder / "token").chmod(0o644)
    with pytest.raises(ValueError, match="other users can read or change this token"):
        opened(board)


def test_kinds_say_what_they_need(opened, board):
    kinds = opened(board).rest.get("/api/kinds").json()
    by_name = {one["kind"]: one for one in kinds["kinds"]}
    assert by_name["baseline"]["policy"] == "needed"
    assert by_name["human"]["policy"] == "none"
    assert not by_name["chess"]["is_operator"]
    assert "CartPole-v1" in kinds["env_ids"]
    assert {"env_id": "pettingzoo/classic/rps_v2", "players": ["player_0", "player_1"]} in kinds[
        "games"
    ]


def test_experiments_are_those_below_the_board_s_base(opened, board):
    served = opened(board)
    assert served.rest.get("/api/experiments").json() == {"experiments": []}
    for run in ("none", "..", "/etc", ""):
        assert served.rest.get("/api/results", params={"run": run}).status_code == 404


def test_recorded_episodes_are_read_by_name_and_number(opened, board):
    write_experiment(board.folder.parent, {"a": episodes("a", {3: [1.0, 2.0]})})
    served = opened(board)
    one = {"run": "told", "operator": "a", "episode": 0}
    (listed,) = served.rest.get("/api/episodes", params={"run": "told"}).json()["episodes"]
    assert (listed["operator"], listed["seed"], listed["total_reward"]) == ("a", 3, 3.0)
    found = served.rest.get("/api/episode", params=one).json()
    assert found["curves"] == [{"name": "a", "points": [[0, 1.0], [1, 3.0]]}]
    page = served.rest.get("/api/steps", params={**one, "from": 1}).json()
    assert (page["start"], page["n_steps"]) == (1, 2)
    assert [[record["reward"] for record in step] for step in page["steps"]] == [[2.0]]


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("steps", {"run": "../told"}, 404, "got '../told'"),
        ("steps", {"run": "/etc"}, 404, "got '/etc'"),
        ("steps", {"operator": "../../secret"}, 404, "got '../../secret'"),
        ("steps", {"operator": "nobody"}, 404, "one of a; got 'nobody'"),
        ("episode", {"episode": "7"}, 404, "'a' has no recorded episode 7"),
        ("steps", {"episode": "7"}, 404, "'a' has no recorded steps of episode 7"),
        ("steps", {"from": "1"}, 404, "episode 0 of 'a' has 1 steps, got 1"),
        ("steps", {"episode": "x"}, 400, "episode: expected a number of at least 0, got 'x'"),
        ("steps", {"episode": "-1"}, 400, "episode: expected a number of at least 0, got '-1'"),
        ("steps", {"from": "1e3"}, 400, "from: expected a number of at least 0, got '1e3'"),
        ("steps", {"from": "9" * 5000}, 400, "from: expected a number"),
        ("steps", {"from": "\N{SUPERSCRIPT TWO}"}, 400, "from: expected a number"),
        ("video", {}, 404, "operator 'a' has no video of episode 0"),
        ("video", {"operator": ".."}, 404, "one of a; got '..'"),
        ("video", {"episode": "0x"}, 400, "episode: expected a number of at least 0, got '0x'"),
        ("steps", {"file": "x"}, 400, "expected only the query ?run=...&operator=...&episode=..."),
        ("episodes", {}, 400, "expected only the query ?run=...&from=..."),
    ],
)
def test_what_is_not_recorded_is_named(opened, board, path, query, status, said):
    write_experiment(board.folder.parent, {"a": episodes("a", {3: [1.0]})})
    query = {"run": "told", "operator": "a", "episode": "0", **query}
    reply = opened(board).rest.get(f"/api/{path}", params=query)
    assert reply.status_code == status
    assert said in reply.json()["error"]


def test_recorded_episodes_are_for_those_with_the_token(opened, board):
    served = opened(board)
    del served.rest.headers["Authorization"]
    for path in ("episodes?run=told", "episode?run=told&operator=a&episode=0", "steps?run=told"):
        assert served.rest.get(f"/api/{path}").status_code == 401
