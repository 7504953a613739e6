from __future__ import annotations

import copy
import random

import pytest

from parllel.distributed.remote import make
from parllel.errors import WrongStateError

STRANGE = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2,
        3,
        10**30,
        1.5,
        1e308,
        "",
        "DONE",
        "<b>",
        [],
        [0],
        [[1]],
        {},
        {"a": 1},
    ),
    *("ACTIVE", "INVALID", [0] * 42, {"step": 0}, -(10**400), "\x00", [None] * 3),
]


def places_in(value, path=()):
    """Yield the paths of all values inside of JSON."""
    yield path
    if isinstance(value, (list, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from places_in(item, (*path, key))


def changed(replay, rng):
    """Return a copy in which one to three values are others, or are missing."""
    replay = copy.deepcopy(replay)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([p for p in places_in(replay) if p])
        inner = replay
        for key in path[:-1]:
            inner = inner[key]
        if rng.random() < 0.3:
            del inner[path[-1]]
        else:
            inner[path[-1]] = copy.deepcopy(rng.choice(STRANGE))
    return replay


@pytest.mark.parametrize(
    ("name", "configuration", "actions", "n"),
    [
        ("rps", {"episodeSteps": 5}, [[0, 1], [2, 9]], 200),
        ("connectx", {"rows": 3, "columns": 3}, [[1, 1], [1, 1]], 200),
        ("gymnasium/CartPole-v1", {"seed": 1, "episodeSteps": 4}, [[0], [1]], 40),
        ("pettingzoo/classic/tictactoe_v3", {"seed": 1}, [[0, 0], [1, 1]], 40),
    ],
)
def test_changed_replays_are_refused_or_played(name, configuration, actions, n):
    with make(name, configuration) as env:
        for row in actions:
            env.step(row)
        replay = env.to_json()
    whole = {part: replay[part] for part in ("steps", "configuration", "info")}
    refused = longest = 0
    rng = random.Random(0)
    for _ in range(n):
        given = changed(whole, rng)
        try:
            env = make(
                name,
                given.get("configuration"),
                info=given.get("info"),
                steps=given.get("steps"),
            )
        except (ValueError, TypeError) as error:
            refused += 1
            longest = max(longest, len(str(error)))
            continue
        with env:
            env.render("ansi")
            env.render("json" if "/" in name else "html")
            for move in (0, "no"):
                if not env.done:
                    env.step([move] * len(env.state))
            if env.done:
                with pytest.raises(WrongStateError, match="is over"):
                    env.step([0] * len(env.state))
    # Some changes are harmless, as those of what an agent had in mind.
    assert n // 5 < refused < n
    assert longest < 1000
