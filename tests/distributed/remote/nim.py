"""A game of a user, registered by the import."""

from __future__ import annotations

from parllel.distributed.remote import Game, register


class Nim(Game):
    """Take one to three sticks; the one who takes the last loses."""

    specification = {
        "name": "nim",
        "agents": [2, 3],
        "configuration": {"sticks": {"type": "integer", "minimum": 1, "default": 7}},
        "observation": {"sticks": {"type": "integer", "minimum": 0, "shared": True, "default": 0}},
        "action": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
        "status": {"defaults": ["ACTIVE", "INACTIVE"]},
    }
    agents = {"one": lambda observation: 1}

    def start(self, position):
        position.shared["sticks"] = self.configuration["sticks"]

    def step(self, position):
        (mover,) = position.active
        taken = position.seats[mover].action
        if taken > position.shared["sticks"]:
            position.refuse(mover, f"there are only {position.shared['sticks']}")
            return
        position.shared["sticks"] -= taken
        if position.shared["sticks"]:
            position.pass_turn(mover)
        else:
            position.end({number: -1 if number == mover else 1 for number in position.left})

    def text(self, position):
        return "|" * position.shared["sticks"] + "\n"


register("nim", Nim)
