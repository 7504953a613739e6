"""The players of one episode in their seats: asks them and waits for their answers.

    programs   send_select_action to all who act, then one poll for all their answers
    people     asked afterwards, all at once and for as long as they take; their workers receive the choices

All programs that act are asked before any answer is awaited. People are asked after the programs have
answered: then a program that died or hangs is noticed before they think in vain, and the time they take does
not count towards a program's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

from msgspec import UNSET

from parllel.distributed.operators.experiments.episode_outcome import DecisionCounts
from parllel.distributed.operators.games.game_questions import PlayerView
from parllel.distributed.operators.games.multi_agent_operator_handle import MultiAgentOperatorHandle
from parllel.distributed.operators.protocol.choosing import Choose, Question
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.errors import WorkerDiedError

Record = dict[str, Any]


class GameFailedError(Exception):
    """Raised when an episode cannot continue. The message gives the reason.

    Attributes:
        lost: players whose processes died or do not answer.
    """

    def __init__(self, what: str, lost: frozenset[str] = frozenset()) -> None:
        super().__init__(what)
        self.lost = lost


class Seat:
    """A player of an episode.

    Args:
        player_id: the player's name in the game.
        operator: the operator that plays it.

    Attributes:
        player_id, operator: the arguments.
        total: sum of the player's rewards.
        counts: numbers of tokens and decisions.
        reply: the reply to the last question, until the action has been played.
    """

    def __init__(self, player_id: str, operator: OperatorConfig) -> None:
        self.player_id, self.operator = player_id, operator
        self.total = 0.0
        self.counts = DecisionCounts()
        self.reply: Mapping[str, Any] = {}


# Arguments: operator_id of a player, its seat, and its status: "starting", "ready", "thinking", "waiting"
# (for a person), "ended", "failed" or "died".
Notice = Callable[[str, str, str], None]


def ignore_notice(operator_id: str, seat: str, status: str) -> None:
    """Do nothing."""


class SeatedPlayers:
    """Asks the players of one episode.

    Args:
        handle: handle of the players, by seat.
        seats: the seats, keyed by name.
        choose: function that asks players of kind "human". With None, their workers ask them.
        notice: function called when the status of a player changes.
    """

    def __init__(
        self,
        handle: MultiAgentOperatorHandle,
        seats: Mapping[str, Seat],
        choose: Choose | None = None,
        notice: Notice = ignore_notice,
    ) -> None:
        self._handle, self._seats = handle, seats
        self._choose, self._notice = choose, notice

    def begin(self, seed: int, timeout_s: float) -> None:
        """Start an episode for all players. Raises GameFailedError if one cannot."""
        self.note(self._seats, "starting")
        self._handle.send_init_agents(seed)
        self._replies(self._seats, "agent_ready", timeout_s)

    def answers(
        self,
        seen: Mapping[str, PlayerView],
        asked: Callable[[str, Mapping[str, Any]], Question],
        timeout_s: float,
    ) -> dict[str, Record]:
        """Return the answers of all players who act.

        Args:
            seen: the view of each player who acts, keyed by player.
            asked: function that takes a player and the settings of its operator, and returns the
                question for a person.
            timeout_s: time limit in seconds for the answers of all programs.

        Raises:
            GameFailedError: if a player does not answer.
            Exception: any exception raised by `choose`, for example when the episode is abandoned.
        """
        people = [player for player in seen if self._is_asked(player)]
        programs = {player: view for player, view in seen.items() if player not in people}
        replies = self._ask(programs, {}, timeout_s)
        if people:
            assert self._choose is not None
            self.note(people, "waiting")
            began = perf_counter()
            questions = [asked(p, self._seats[p].operator.settings) for p in people]
            # `look` is called about once a second meanwhile: a worker's death ends the wait.
            chosen = dict(zip(people, self._choose(questions, self.look), strict=True))
            took = perf_counter() - began
            # The worker is told the choice, so that its own records and replies are like any other player's.
            answered = self._ask({p: seen[p] for p in people}, chosen, timeout_s)
            for player, question in zip(people, questions, strict=True):
                replies[player] = {
                    "raw": question.name_of(chosen[player]),
                    **answered[player],
                    "latency_s": answered[player]["latency_s"] + took,
                }
        return replies

    def note(self, players: Iterable[str], status: str) -> None:
        """Report the status of players to `notice`."""
        for player in players:
            self._notice(self._seats[player].operator.operator_id, player, status)

    def name_of(self, player: str) -> str:
        """Return a player and its operator, for error messages."""
        return f"player {player!r} ({self._seats[player].operator.operator_id})"

    def _is_asked(self, player: str) -> bool:
        return self._choose is not None and self._seats[player].operator.operator_type == "human"

    def _ask(
        self, seen: Mapping[str, PlayerView], chosen: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Record]:
        if not seen:
            return {}
        self.note(seen, "thinking")
        for player, view in seen.items():
            self._handle.send_select_action(
                player,
                view.observation,
                legal_actions=view.legal,
                info=view.info or None,
                text=view.text,
                action=chosen.get(player, UNSET),
            )
        return self._replies(seen, "action_selected", timeout_s)

    def _replies(
        self, players: Iterable[str], expected: str, timeout_s: float
    ) -> dict[str, Record]:
        """Return the reply of each player. Raises GameFailedError if one is not of the expected type."""
        # Every player that was asked has an entry: a reply, a timeout, a death or an error.
        replies = self._handle.poll_all_responses(timeout_s)
        for player in players:
            # Kept even if it is wrong or never played: its tokens have been paid for.
            self._seats[player].reply = replies[player]
        wrong = [player for player in players if replies[player]["type"] != expected]
        lost = frozenset(p for p in wrong if replies[p]["type"] in ("died", "timeout"))
        for player in players:
            status = "died" if player in lost else "failed" if player in wrong else "ready"
            self.note([player], status)
        if wrong:
            raise GameFailedError("; ".join(self._why(p, replies[p]) for p in wrong), lost)
        return {player: replies[player] for player in players}

    def look(self) -> None:
        """Raise GameFailedError if any player's worker has died, even if it is not its turn.

        Does nothing unless people may be asked, because only their answers take long. Without
        people, a death is noticed when it is the player's turn, so the step in which an episode
        fails does not depend on timing.
        """
        if self._choose is None:
            return
        lost = {}
        for player, handle in self._handle.player_handles.items():
            if not handle.is_running:
                # The read tells how it ended; a last reply that it may still return is not needed.
                try:
                    handle.try_read_response(0.0)
                except WorkerDiedError as error:
                    lost[player] = {"message": str(error)}
        if lost:
            self.note(lost, "died")
            why = "; ".join(self._why(player, reply) for player, reply in lost.items())
            raise GameFailedError(why, frozenset(lost))

    def _why(self, player: str, reply: Mapping[str, Any]) -> str:
        reason = str(reply.get("message", f"answered {reply.get('type')!r}"))
        # Without process ids: two runs of a script must write the same records.
        pid = self._handle.player_handles[player].pid
        reason = " ".join(reason.replace(f"process {pid} ", "its process ").split())
        return f"{self.name_of(player)}: {reason}"
