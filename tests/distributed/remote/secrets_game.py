"""A game with fields that agents must not see; as a script, what kaggle-environments shows of it.

As a script it imports nothing of this package, as it runs in an environment of its own.
"""

from __future__ import annotations

import copy
import json
import sys

NUMBER = {"type": "integer", "default": 0}
OBSERVATION = {
    "mine": NUMBER,
    "secret": {**NUMBER, "hidden": True},
    "table": {**NUMBER, "shared": True},
    "deck": {"type": "array", "shared": True, "hidden": True, "default": []},
    "open": {**NUMBER, "hidden": False},
    "hand": {
        "type": "object",
        "default": {"seen": 0, "kept": 0, "deep": {"seen": 0, "kept": 0}},
        "properties": {
            "seen": {"type": "integer"},
            "kept": {"type": "integer", "hidden": True},
            "deep": {
                "type": "object",
                "properties": {"seen": NUMBER, "kept": {**NUMBER, "hidden": True}},
            },
        },
    },
    "board": {
        "type": "object",
        "shared": True,
        "default": {"seen": 0, "kept": 0},
        "properties": {"seen": NUMBER, "kept": {**NUMBER, "hidden": True}},
    },
    # Named as the mark is.
    "hidden": NUMBER,
    "named": {"type": "object", "default": {"hidden": 0}, "properties": {"hidden": NUMBER}},
}
SPECIFICATION = {
    "name": "secrets",
    "title": "secrets",
    "version": "1",
    "agents": [2],
    "configuration": {
        "episodeSteps": {"type": "integer", "default": 10},
        "actTimeout": {"type": "number", "default": 20},
    },
    "observation": OBSERVATION,
    "action": {"type": "string", "default": ""},
    "reward": {"type": ["number", "null"], "default": 0},
}


def fields(number, step):
    """Return what the game writes for a seat."""
    at = 10 * step + number
    own = {
        "mine": at,
        "secret": 100 + at,
        "open": at,
        "hand": {"seen": at, "kept": at, "deep": {"seen": at, "kept": at}},
        "hidden": at,
        "named": {"hidden": at},
    }
    shared = {"table": at, "deck": [at], "board": {"seen": at, "kept": at}}
    return own, shared


def plain(value):
    return json.loads(json.dumps(value))


def interpreter(state, env):
    """Play the game in kaggle-environments."""
    if env.done:
        return state
    step = state[0].observation.step
    for number, seat in enumerate(state):
        own, shared = fields(number, step)
        seat.observation.update(copy.deepcopy({**own, **(shared if number == 0 else {})}))
        if step >= 3:
            seat.status = "DONE"
    return state


AGENT = """
import json

def agent(observation, configuration):
    return json.dumps(observation, sort_keys=True)
"""


def main():
    """Print what agents of the package see, and the replay."""
    from kaggle_environments import make, register

    game = {
        "agents": {},
        "html_renderer": lambda env: "",
        "interpreter": interpreter,
        "renderer": lambda state, env: "",
        "specification": SPECIFICATION,
    }
    register("secrets", game)
    env = make("secrets")
    env.run(sys.argv[2:4])
    with open(sys.argv[1], "w") as file:
        json.dump(env.toJSON()["steps"], file)


if __name__ == "__main__":
    main()
