"""One episode of a game: asks players, applies the rule for illegal actions, and steps the game.

game      turn(): who acts     seen(): observations, legal actions        step(actions)
                                    |                                          ^
players                             +---- questions and answers ---------------+
          (seated_players.py)             illegal actions are replaced by the game's rule
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.games.game_questions import GameQuestions
from parllel.distributed.operators.games.seated_players import (
    GameFailedError,
    Record,
    Seat,
    SeatedPlayers,
)
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.envs.multi_agent_game import AecGame, MultiAgentGame
from parllel.seeding import Seeds
from parllel.types import Tree


class _Choice(NamedTuple):
    """A player's choice.

    reply: of its worker.
    action: the action to play; None if the rule for illegal actions plays none.
    why: what is wrong with the choice; None if it is legal.
    """

    reply: dict[str, Any]
    action: Tree
    why: str | None = None

    @property
    def is_illegal(self) -> bool:
        """Whether the rule for illegal actions was applied."""
        return self.why is not None


class GamePlay:
    """State of one episode.

    Args:
        game: the game, which is reset when the episode begins.
        config: configuration of the game.
        players: the players in their seats.
        seats: the seats, keyed by name.
        seed: seed of the game.
        agent_seed: seed from which each player's seed is derived, together with the name of the
            seat.
        record_step: function called with a record of each action that a player was asked for.
        watch: function called at the start and after each step of the game. It receives the number
            of steps taken, and whether the step was the last one.
    """

    def __init__(
        self,
        game: MultiAgentGame,
        config: MultiAgentConfig,
        players: SeatedPlayers,
        seats: Mapping[str, Seat],
        seed: int,
        agent_seed: int,
        record_step: Callable[[Record], None],
        watch: Callable[[int, bool], None],
    ) -> None:
        self._watch = watch
        self._game, self._config, self._players = game, config, players
        self._questions = GameQuestions(game)
        self._seats, self._record_step = seats, record_step
        self._seed, self._agent_seed = seed, agent_seed
        # A separate stream: how often it is drawn from must not change any player's or the game's randomness.
        self._generator = Seeds(agent_seed).generator("illegal actions")
        self._length = 0
        self._is_cut = self._is_forfeit = False

    def begin(self, timeout_s: float) -> None:
        """Reset the game and all players. Raises GameFailedError if one of them cannot start."""
        with self._of_game("reset"):
            self._game.flags = {}
            self._game.reset(self._seed)
            self._watch(0, False)
        # The game first: if it fails, no player has been asked in vain.
        self._players.begin(self._agent_seed, timeout_s)

    def play(self, before_step: Callable[[], None], timeout_s: float) -> None:
        """Play to the end, or to the step limit. Raises GameFailedError if the game cannot go on."""
        while not self._is_forfeit:
            with self._of_game("turn"):
                movers = self._game.turn()
            if not movers:
                return
            if self._length == self._config.max_steps:
                self._is_cut = True
                return
            before_step()
            # While one player thinks for long, another may have died; see `look`.
            self._players.look()
            self._step(self._choices(movers, timeout_s))

    def outcome(self, seat: Seat, failure: GameFailedError | None) -> EpisodeOutcome:
        """Return the outcome of a player once the episode is over."""
        if failure is None:
            self._players.note([seat.player_id], "ended")
        terminated, truncated = self._game.flags.get(seat.player_id, (False, False))
        unplayed = {} if failure is None else seat.counts.unplayed(seat.reply)
        return EpisodeOutcome(
            "ended" if failure is None else "failed",
            seat.total,
            self._length,
            terminated=terminated or self._is_forfeit,
            truncated=truncated or (self._is_cut and not terminated),
            failure=None if failure is None else str(failure),
            counts=seat.counts.sums,
            unplayed=unplayed,
            operator_id=seat.operator.operator_id,
            player_id=seat.player_id,
            lost=failure is not None and seat.player_id in failure.lost,
        )

    def _choices(self, movers: list[str], timeout_s: float) -> dict[str, _Choice]:
        """Ask all players who act now, and return what each of them plays."""
        # All observations before the first question, so that no worker waits while the next is encoded.
        with self._of_game("observe"):
            seen = {player: self._questions.seen(player) for player in movers}
        replies = self._players.answers(
            seen,
            lambda player, settings: self._questions.asked(player, seen[player], settings),
            timeout_s,
        )
        return {player: self._choice(player, replies[player]) for player in movers}

    def _choice(self, player: str, reply: Record) -> _Choice:
        """Return what is played after a worker's reply, applying the game's rule if its action is illegal.

        random     a random action, legal if the game tells, drawn by a generator of the episode's seed
        first      the first legal action; if the game does not tell, the valid action nearest to 0
        forfeit    nothing: the game ends, with -1 for this player and 0 for the others
        error      nothing: the episode has failed
        """
        try:
            return _Choice(reply, self._questions.action_of(player, reply.get("action")))
        except ValueError as error:
            why = f"illegal action {str(reply.get('action'))[:100]}: {error}"
        action: Tree = None
        if self._config.illegal == "random":
            action = self._questions.draw_action(player, self._generator)
        elif self._config.illegal == "first":
            action = self._questions.first_action(player)
        return _Choice(reply, action, why)

    def _step(self, choices: Mapping[str, _Choice]) -> None:
        """Step the game, unless an illegal choice ends it, and write the records."""
        illegal = [player for player, choice in choices.items() if choice.is_illegal]
        stops = bool(illegal) and self._config.illegal in ("forfeit", "error")
        if not stops:
            with self._of_game("step"):
                rewards = self._game.step({p: choice.action for p, choice in choices.items()})
                wrong = [p for p, reward in rewards.items() if not math.isfinite(reward)]
                if wrong:
                    raise ValueError(
                        f"expected finite rewards, got {rewards[wrong[0]]} for {wrong[0]!r}"
                    )
                is_cut = self._length + 1 == self._config.max_steps
                # Viewers may want the last picture only, so it must be known whether this is the last.
                self._watch(self._length + 1, is_cut or not self._game.turn())
        else:
            self._is_forfeit = self._config.illegal == "forfeit"
            rewards = dict.fromkeys(illegal, -1.0) if self._is_forfeit else {}
            with self._of_game("step"):
                self._watch(self._length + 1, True)
        self._length += 1
        for player, reward in rewards.items():
            self._seats[player].total += reward
        for player, choice in choices.items():
            self._record_step(self._record(player, choice, rewards, is_played=not stops))
        # After the records: an episode that fails by the rule still shows which action broke it.
        if stops and not self._is_forfeit:
            raise GameFailedError(f"{self._players.name_of(illegal[0])}: {choices[illegal[0]].why}")

    def _record(
        self, player: str, choice: _Choice, rewards: Mapping[str, float], *, is_played: bool
    ) -> Record:
        seat, reply = self._seats[player], choice.reply
        seat.reply = {}
        terminated, truncated = self._game.flags[player]
        record: Record = {
            "operator_id": seat.operator.operator_id,
            "player_id": player,
            "step": self._length,
            "action": reply.get("action"),
            "raw": reply.get("raw"),
            "parsed": reply.get("parsed"),
            "executed": self._questions.action_json(player, choice.action) if is_played else None,
            "illegal": choice.is_illegal,
            "reward": rewards.get(player, 0.0),
            "terminated": terminated or self._is_forfeit,
            "truncated": truncated,
            "episode_reward": seat.total,
            "latency_s": reply.get("latency_s"),
        }
        if isinstance(self._game, AecGame):
            # In turn-based games a move may reward the other players too.
            record["rewards"] = dict(rewards)
        seat.counts.note(reply, record)
        if reply.get("decide_s") is not None:
            record["decide_s"] = reply["decide_s"]
        return record

    @contextmanager
    def _of_game(self, doing: str) -> Iterator[None]:
        """Turn an exception of the game into a failure of the episode."""
        try:
            yield
        except Exception as error:
            raise GameFailedError(
                f"game {self._config.env_id!r}: {doing}: {type(error).__name__}: {error}"
            ) from error
