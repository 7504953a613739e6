from __future__ import annotations

import sys

import pytest
from nim import Nim

from parllel.distributed.remote import environments, make, register
from parllel.distributed.remote.games.registry import import_module_of_user
from parllel.distributed.remote.games.specification import Specification

MODULE = """
from parllel.distributed.remote import Game, register

class Coin(Game):
    specification = {"name": "coin", "agents": [1], "action": {"enum": ["heads", "tails"]}}

    def step(self, position):
        position.end({0: 1})

register("coin", Coin)
"""


def test_shipped_and_registered_games_are_listed():
    assert {"rps", "connectx", "nim"} <= set(environments())
    assert environments() == sorted(environments())
    register("nim/large", lambda: Nim())
    with make("nim/large") as env:
        assert env.name == "nim/large"


@pytest.mark.parametrize(
    ("name", "game", "error", "message"),
    [
        ("a b", Nim, ValueError, "expected a name of letters"),
        ("", Nim, ValueError, "expected a name of letters"),
        (
            "gymnasium/Mine-v0",
            Nim,
            ValueError,
            "expected a name without the prefix of another library",
        ),
        ("mine", Nim(), TypeError, "expected a class derived from Game"),
    ],
)
def test_what_cannot_be_registered_is_refused(name, game, error, message):
    with pytest.raises(error, match=message):
        register(name, game)


def test_a_game_that_is_none_is_found_when_it_is_made():
    register("none", dict)
    with pytest.raises(TypeError, match=r"none: expected a Game, got \{\}"):
        make("none")
    with pytest.raises(
        ValueError, match=r"environment 'chess': expected .*connectx.*--import MODULE"
    ):
        make("chess")


def test_a_file_of_the_user_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "coin_game.py").write_text(MODULE)
    import_module_of_user(str(tmp_path / "coin_game.py"))
    with make("coin") as env:
        assert env.step(["heads"])[0]["reward"] == 1
        env.reset()
        # Without a default nothing can be played for an agent.
        assert env.step([None])[0]["status"] == "INVALID"
    # From the current folder as well.
    (tmp_path / "penny_game.py").write_text(MODULE.replace('register("coin"', 'register("penny"'))
    monkeypatch.chdir(tmp_path)
    import_module_of_user("penny_game")
    assert "penny" in environments()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "penny_game.py").write_text(MODULE)
    with pytest.raises(ImportError, match="a module named penny_game is already imported"):
        import_module_of_user(str(tmp_path / "other" / "penny_game.py"))


def test_modules_that_are_missing_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ImportError, match="--import no_such_module: no such module"):
        import_module_of_user("no_such_module")
    with pytest.raises(FileNotFoundError, match=r"nothing\.py: no such file"):
        import_module_of_user(str(tmp_path / "nothing.py"))
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        import_module_of_user(str(tmp_path / "needs_more.py"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agents": [1]}, "specification.name: expected a name, got None"),
        ({"name": "x"}, "specification.agents of x: expected a list of numbers"),
        ({"name": "x", "agents": [0]}, "specification.agents of x"),
        (
            {"name": "x", "agents": [1], "action": {"type": "integr"}},
            "specification of x: .*integr",
        ),
    ],
)
def test_specifications_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        Specification(given)


@pytest.mark.parametrize(
    ("action", "ok"),
    [(0, True), (4, True), (5, False), (-1, False), (1.0, True), (1.5, False), (True, False)],
)
def test_quick_checks_of_numbers_agree_with_the_schema(action, ok):
    schema = {"type": "integer", "minimum": 0, "maximum": 4}
    quick = Specification({"name": "x", "agents": [1], "action": schema})
    slow = Specification({"name": "x", "agents": [1], "action": {**schema, "multipleOf": 1}})
    assert (quick.action_error(action) is None) is ok
    assert (slow.action_error(action) is None) is ok


def test_defaults_differ_by_seat():
    spec = Specification(
        {
            "name": "x",
            "agents": [3],
            "status": {"defaults": ["ACTIVE", "INACTIVE"]},
            "observation": {
                "mark": {"defaults": ["x", "o"]},
                "board": {"shared": True, "default": []},
            },
        }
    )
    position = spec.position(3, spec.configure({"agentTimeout": 5}))
    assert [seat.status for seat in position.seats] == ["ACTIVE", "INACTIVE", "INACTIVE"]
    assert [seat.observation["mark"] for seat in position.seats] == ["x", "o", "o"]
    assert position.shared == {"step": 0, "board": []}
    assert position.seats[2].observation["remainingOverageTime"] == 5
