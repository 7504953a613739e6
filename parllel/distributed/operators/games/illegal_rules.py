"""What is played for a player whose action is not legal, by the rule that its game declares.

random     a random one, legal where the game says which are, by a generator of the episode's seed
first      the first legal one; where the game does not say, 0 or what is nearest to it
forfeit    nothing: the game ends, with -1 for this player and 0 for the others
error      nothing: the episode has failed
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from parllel.distributed.operators.games.game import Game
from parllel.types import Tree


class Choice(NamedTuple):
    """What a player chose.

    reply: of its worker.
    action: to be played; None if the rule has none.
    why: what is wrong with what it chose; None if it is legal.
    """

    reply: dict[str, Any]
    action: Tree
    why: str | None = None

    @property
    def is_illegal(self) -> bool:
        """Whether the rule was applied."""
        return self.why is not None


def choice_of(
    game: Game, player: str, reply: dict[str, Any], rule: str, generator: np.random.Generator
) -> Choice:
    """Return what is to be played for a player, after its worker's reply.

    rule: one of ILLEGAL_RULES of multi_agent_config.
    generator: of the episode, which only rule "random" draws from.
    """
    try:
        return Choice(reply, game.action_of(player, reply.get("action")))
    except ValueError as error:
        why = f"illegal action {str(reply.get('action'))[:100]}: {error}"
    if rule == "random":
        return Choice(reply, game.draw_action(player, generator), why)
    return Choice(reply, game.first_action(player) if rule == "first" else None, why)
