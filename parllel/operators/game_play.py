"""One episode of a game: players asked, the rule for illegal actions applied, the game stepped.

    game      turn(): who acts     seen(): observations, legal actions           step(actions)
                     |                      |                                          ^
    players          +---- send_select_action to all of them, then one poll -----------+
                                            played, or replaced by the rule for illegal actions

In a simultaneous game all are asked before the first answer is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from parllel.operators.episode_outcome import EpisodeOutcome
from parllel.operators.game import Game
from parllel.operators.illegal_rules import Choice, choice_of
from parllel.operators.multi_agent_config import MultiAgentConfig
from parllel.operators.multi_agent_operator_handle import MultiAgentOperatorHandle
from parllel.operators.operator_config import OperatorConfig
from parllel.operators.sequential_game import SequentialGame
from parllel.seeding import Seeds

Record = dict[str, Any]


class GameFailedError(Exception):
    """An episode cannot go on; says why.

    Attributes:
        lost: the players whose processes died or do not answer.
    """

    def __init__(self, what: str, lost: frozenset[str] = frozenset()) -> None:
        super().__init__(what)
        self.lost = lost


class Seat:
    """A player of an episode.

    Args:
        player_id: its name in the game.
        operator: who plays it.

    Attributes:
        player_id, operator: the arguments.
        total: of its rewards.
        tokens: that it took; None if it does not say.
    """

    def __init__(self, player_id: str, operator: OperatorConfig) -> None:
        self.player_id, self.operator = player_id, operator
        self.total = 0.0
        self.tokens: int | None = None


class GamePlay:
    """One episode, as far as it has come.

    Args:
        game: is reset.
        config: of the game.
        handle: of the players, by their seats.
        seats: by name.
        seed: of the game.
        agent_seed: from which each player's is derived, by the name of its seat.
        record_step: is given a record for each action that was asked for.
        watch: called with the number of steps, at the beginning and after each step of the game.
    """

    def __init__(
        self,
        game: Game,
        config: MultiAgentConfig,
        handle: MultiAgentOperatorHandle,
        seats: Mapping[str, Seat],
        seed: int,
        agent_seed: int,
        record_step: Callable[[Record], None],
        watch: Callable[[int], None],
    ) -> None:
        self._watch = watch
        self._game, self._config, self._handle = game, config, handle
        self._seats, self._record_step = seats, record_step
        self._seed, self._agent_seed = seed, agent_seed
        self._generator = Seeds(agent_seed).generator("illegal actions")
        self._length = 0
        self._is_cut = self._is_forfeit = False

    def begin(self, timeout_s: float) -> None:
        """Reset the game and all players; raise GameFailedError if one of them cannot begin."""
        with self._of_game("reset"):
            self._game.flags = {}
            self._game.reset(self._seed)
            self._watch(0)
        self._handle.send_init_agents(self._agent_seed)
        self._replies(list(self._seats), "agent_ready", timeout_s)

    def go_on(self, before_step: Callable[[], None], timeout_s: float) -> None:
        """Play until the end, or until the limit of steps; raise GameFailedError if it cannot go on."""
        while not self._is_forfeit:
            with self._of_game("turn"):
                movers = self._game.turn()
            if not movers:
                return
            if self._length == self._config.max_steps:
                self._is_cut = True
                return
            choices = self._choices(movers, timeout_s)
            before_step()
            self._step(choices)

    def outcome(self, seat: Seat, failure: GameFailedError | None) -> EpisodeOutcome:
        """Return what came of it for a player."""
        terminated, truncated = self._game.flags.get(seat.player_id, (False, False))
        return EpisodeOutcome(
            "ended" if failure is None else "failed",
            seat.total,
            self._length,
            terminated=terminated or self._is_forfeit,
            truncated=truncated or (self._is_cut and not terminated),
            failure=None if failure is None else str(failure),
            tokens=seat.tokens,
            operator_id=seat.operator.operator_id,
            player_id=seat.player_id,
            lost=failure is not None and seat.player_id in failure.lost,
        )

    def _choices(self, movers: list[str], timeout_s: float) -> dict[str, Choice]:
        """Ask all who act now, and return what is to be played for each."""
        # Before the first is asked, so that none waits while others are observed.
        with self._of_game("observe"):
            seen = {player: self._game.seen(player) for player in movers}
        for player, one in seen.items():
            self._handle.send_select_action(
                player,
                one.observation,
                legal_actions=one.legal,
                info=one.info or None,
                text=one.text,
            )
        replies = self._replies(movers, "action_selected", timeout_s)
        rule, game = self._config.illegal, self._game
        return {p: choice_of(game, p, replies[p], rule, self._generator) for p in movers}

    def _step(self, choices: Mapping[str, Choice]) -> None:
        """Step the game, unless a choice ends it; write the records."""
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
                self._watch(self._length + 1)
        else:
            self._is_forfeit = self._config.illegal == "forfeit"
            rewards = dict.fromkeys(illegal, -1.0) if self._is_forfeit else {}
        self._length += 1
        for player, reward in rewards.items():
            self._seats[player].total += reward
        for player, choice in choices.items():
            self._record_step(self._record(player, choice, rewards, is_played=not stops))
        if stops and not self._is_forfeit:
            raise GameFailedError(f"{self._who(illegal[0])}: {choices[illegal[0]].why}")

    def _record(
        self, player: str, choice: Choice, rewards: Mapping[str, float], *, is_played: bool
    ) -> Record:
        seat, reply = self._seats[player], choice.reply
        terminated, truncated = self._game.flags[player]
        record: Record = {
            "operator_id": seat.operator.operator_id,
            "player_id": player,
            "step": self._length,
            "action": reply.get("action"),
            "raw": reply.get("raw"),
            "parsed": reply.get("parsed"),
            "executed": self._game.action_json(player, choice.action) if is_played else None,
            "illegal": choice.is_illegal,
            "reward": rewards.get(player, 0.0),
            "terminated": terminated or self._is_forfeit,
            "truncated": truncated,
            "episode_reward": seat.total,
            "latency_s": reply.get("latency_s"),
        }
        if isinstance(self._game, SequentialGame):
            # Others are paid for this move, too.
            record["rewards"] = dict(rewards)
        if reply.get("tokens") is not None:
            seat.tokens = (seat.tokens or 0) + int(reply["tokens"])
            record["tokens"] = reply["tokens"]
        if reply.get("decide_s") is not None:
            record["decide_s"] = reply["decide_s"]
        return record

    def _replies(
        self, players: list[str], expected: str, timeout_s: float
    ) -> dict[str, dict[str, Any]]:
        """Return the answer of each; raise GameFailedError if one has none."""
        replies = self._handle.poll_all_responses(timeout_s)
        wrong = [player for player in players if replies[player]["type"] != expected]
        if wrong:
            lost = frozenset(p for p in wrong if replies[p]["type"] in ("died", "timeout"))
            raise GameFailedError("; ".join(self._why(p, replies[p]) for p in wrong), lost)
        return {player: replies[player] for player in players}

    def _why(self, player: str, reply: Mapping[str, Any]) -> str:
        said = str(reply.get("message", f"answered {reply['type']!r}"))
        # Records of the same script are to be the same.
        pid = self._handle.player_handles[player].pid
        said = " ".join(said.replace(f"process {pid} ", "its process ").split())
        return f"{self._who(player)}: {said}"

    def _who(self, player: str) -> str:
        return f"player {player!r} ({self._seats[player].operator.operator_id})"

    @contextmanager
    def _of_game(self, doing: str) -> Iterator[None]:
        """Let an error of the game be a failure of the episode."""
        try:
            yield
        except Exception as error:
            raise GameFailedError(
                f"game {self._config.env_id!r}: {doing}: {type(error).__name__}: {error}"
            ) from error
