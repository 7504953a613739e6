"""Episodes that kaggle-environments and this package play alike; as a script, what the former makes of them.

It imports nothing of this package, as it runs in an environment of its own.
"""

from __future__ import annotations

import json
import random

# Name, configuration, agents: lists are played one after the other, "raise" raises an error.
rng = random.Random(3)
SIGNS = [[rng.randrange(3) for _ in range(40)] for _ in range(2)]
CASES = {
    "rps": ("rps", {"episodeSteps": 30}, SIGNS),
    "rps by one point": ("rps", {"episodeSteps": 12, "tieRewardThreshold": 1}, SIGNS),
    "rps at the threshold": (
        "rps",
        {"episodeSteps": 6, "tieRewardThreshold": 5},
        ["rock", "paper"],
    ),
    "rps below it": ("rps", {"episodeSteps": 5, "tieRewardThreshold": 5}, ["rock", "paper"]),
    "rps, five signs": (
        "rps",
        {"episodeSteps": 30, "signs": 5, "tieRewardThreshold": 2},
        [[(7 * i) % 5 for i in range(30)], [(i * i) % 5 for i in range(30)]],
    ),
    "rps, four signs": (
        "rps",
        {"episodeSteps": 20, "signs": 4, "tieRewardThreshold": 1},
        [[i % 4 for i in range(20)], [(i // 4) % 4 for i in range(20)]],
    ),
    "rps, two steps": ("rps", {"episodeSteps": 2}, ["rock", "paper"]),
    "rps, statistical": ("rps", {"episodeSteps": 40}, ["statistical", SIGNS[0]]),
    "rps, no agent": ("rps", {"episodeSteps": 5}, [None, "paper"]),
    "rps, no action": ("rps", {"episodeSteps": 5}, [[1, None, 1, None], "paper"]),
    "rps, outside the schema": ("rps", {"episodeSteps": 6}, [[1, 5], "rock"]),
    "rps, text": ("rps", {"episodeSteps": 6}, ["rock", [1, "x"]]),
    "rps, true": ("rps", {"episodeSteps": 6}, ["rock", [1, True]]),
    "rps, a sign too many": ("rps", {"episodeSteps": 6}, [[1, 3], "rock"]),
    "rps, a float": ("rps", {"episodeSteps": 6}, [[1, 1.0], "rock"]),
    "rps, both invalid": ("rps", {"episodeSteps": 6}, [[1, 9], [1, -1]]),
    "connectx, first wins": ("connectx", {}, [[0, 0, 0, 0], [1, 1, 1]]),
    "connectx, second wins": ("connectx", {}, [[0, 1, 0, 1], [3, 3, 3, 3]]),
    "connectx, diagonal": (
        "connectx",
        {"inarow": 3},
        [[0, 1, 4, 2], [1, 2, 2]],
    ),
    "connectx, a tie": (
        "connectx",
        {"rows": 2, "columns": 2, "inarow": 3},
        [[0, 0], [1, 1]],
    ),
    "connectx, full column": ("connectx", {"rows": 3, "columns": 3}, [[1, 1], [1, 1]]),
    "connectx, no such column": ("connectx", {}, [[1, 7], [1, 1]]),
    "connectx, second fails": ("connectx", {}, [[1, 1, 1], [1, -1]]),
    "connectx, text": ("connectx", {}, [["left"], [1]]),
    "connectx, an error": ("connectx", {}, [[1, "raise"], [1, 1]]),
    "connectx, an error of the second": ("connectx", {}, [[1, 1], [1, "raise"]]),
    "connectx, no action": ("connectx", {"episodeSteps": 6}, [[1, None, 2], [3, 3, None]]),
    "connectx, one in a row": ("connectx", {"inarow": 1}, [[6], [0]]),
    "connectx, one step": ("connectx", {"episodeSteps": 1}, [[6], [0]]),
    "connectx, four steps": ("connectx", {"episodeSteps": 4}, [[6, 6], [0, 0]]),
    "connectx, one column": (
        "connectx",
        {"columns": 1, "rows": 6, "inarow": 2},
        [[0, 0, 0], [0, 0, 0]],
    ),
    "connectx, columns in order": (
        "connectx",
        {"rows": 5, "columns": 5},
        [[i % 5 for i in range(13)], [(i + 2) % 5 for i in range(12)]],
    ),
}
# Name, configuration, agents, actions of the one that is trained; over and over, until one number of steps.
TRAINED = {
    "connectx, first": ("connectx", {}, [None, [1, 1, 1, 1]], [0, 0, 0, 0, 2]),
    # One more than are played: the package asks for the first already by `train`.
    "connectx, second": ("connectx", {}, [[1, 1, 1, 1, 1], None], [0, 2, 0]),
    "connectx, no such column": ("connectx", {}, [None, [1, 1, 1]], [0, 9]),
    "connectx, the other fails": ("connectx", {}, [None, [1, 9]], [0, 0]),
    "rps": ("rps", {"episodeSteps": 6}, [None, "rock"], [1, 1, 0, 1, 1]),
    "rps, below the threshold": ("rps", {"episodeSteps": 4}, ["rock", None], [1, 1, 1]),
}
# Their first action is drawn.
REACTING = ("copy_opponent", "reactionary", "counter_reactionary", "statistical")


def agent(given):
    """Return what plays a list of actions; anything else is an agent as it is."""
    if not isinstance(given, list):
        return given
    left = list(given)

    def act(observation, configuration):
        action = left.pop(0)
        if action == "raise":
            raise ValueError("as it should")
        return action

    return act


def seen(steps):
    """Return what both are to agree on."""
    return [[[state["action"], state["reward"], state["status"]] for state in row] for row in steps]


def trained(make, case):
    """Return what is seen of two episodes, in which one agent plays a list of actions."""
    name, configuration, agents, actions = case
    env = make(name, configuration)
    seen_ = []
    for _ in range(2):
        # Anew, as the lists of the others are played once.
        trainer = env.train([None if given is None else agent(given) for given in agents])
        seen_.append(dict(trainer.reset()))
        for action in actions:
            observation, reward, done, _ = trainer.step(action)
            seen_.append([dict(observation), reward, done])
            if done:
                break
    return seen_


def main():
    """Print what kaggle-environments plays."""
    from kaggle_environments import make

    played = {}
    for title, (name, configuration, agents) in CASES.items():
        env = make(name, configuration)
        env.run([agent(given) for given in agents])
        played[title] = env.toJSON()
    reactions = {}
    for name in REACTING:
        for signs in (3, 5):
            env = make("rps", {"episodeSteps": 40, "signs": signs})
            env.run([name, agent([(i * i + i // 3) % signs for i in range(40)])])
            reactions[f"{name} {signs}"] = env.toJSON()["steps"]
    specifications = [make(name).specification for name in ("rps", "connectx")]
    learned = {title: trained(make, case) for title, case in TRAINED.items()}
    print(
        json.dumps(
            {
                "learned": learned,
                "played": played,
                "reactions": reactions,
                "specifications": specifications,
            }
        )
    )


if __name__ == "__main__":
    main()
