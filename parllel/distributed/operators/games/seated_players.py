"""The players of one episode in their seats: asked, and their answers waited for.

    programs   send_select_action to all who act, then one poll for all of their answers
    people     then asked, all at once, for as long as they take; their workers get what they chose

No answer is waited for before all programs that act are asked. People come after these have answered: a
program that died or hangs is noticed before they think in vain, and their time is not counted as its own.
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
        counts: of its tokens and decisions.
        reply: to the last question, until it was played.
    """

    def __init__(self, player_id: str, operator: OperatorConfig) -> None:
        self.player_id, self.operator = player_id, operator
        self.total = 0.0
        self.counts = DecisionCounts()
        self.reply: Mapping[str, Any] = {}


# Called with the operator_id of a player, its seat, and what it does now: "starting", "ready", "thinking",
# "waiting" (for a person), "ended", "failed" or "died".
Notice = Callable[[str, str, str], None]


def ignore_notice(operator_id: str, seat: str, status: str) -> None:
    """Take no notice."""


class SeatedPlayers:
    """Ask the players of one episode.

    Args:
        handle: of the players, by their seats.
        seats: by name.
        choose: asks the players of kind "human"; None leaves that to their workers.
        notice: is called when a player has something else to do.
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
        """Let all players begin an episode; raise GameFailedError if one cannot."""
        self.note(self._seats, "starting")
        self._handle.send_init_agents(seed)
        self._replies(self._seats, "agent_ready", timeout_s)

    def answers(
        self,
        seen: Mapping[str, PlayerView],
        asked: Callable[[str, Mapping[str, Any]], Question],
        timeout_s: float,
    ) -> dict[str, Record]:
        """Return the answers of all who act.

        Args:
            seen: by player who acts, what it is asked with.
            asked: returns what a person is asked, given the player and the settings of its operator.
            timeout_s: for the answers of all programs.

        Raises:
            GameFailedError: if a player does not answer.
            Exception: what `choose` raises, as if the episode is given up.
        """
        people = [player for player in seen if self._is_asked(player)]
        replies = self._ask({p: one for p, one in seen.items() if p not in people}, {}, timeout_s)
        if people:
            assert self._choose is not None
            self.note(people, "waiting")
            began = perf_counter()
            questions = [asked(p, self._seats[p].operator.settings) for p in people]
            chosen = dict(zip(people, self._choose(questions, self.look), strict=True))
            took = perf_counter() - began
            told = self._ask({p: seen[p] for p in people}, chosen, timeout_s)
            for player, question in zip(people, questions, strict=True):
                replies[player] = {
                    "raw": question.name_of(chosen[player]),
                    **told[player],
                    "latency_s": told[player]["latency_s"] + took,
                }
        return replies

    def note(self, players: Iterable[str], status: str) -> None:
        """Say what players do now."""
        for player in players:
            self._notice(self._seats[player].operator.operator_id, player, status)

    def name_of(self, player: str) -> str:
        """Return a player and its operator, for messages."""
        return f"player {player!r} ({self._seats[player].operator.operator_id})"

    def _is_asked(self, player: str) -> bool:
        return self._choose is not None and self._seats[player].operator.operator_type == "human"

    def _ask(
        self, seen: Mapping[str, PlayerView], chosen: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Record]:
        if not seen:
            return {}
        self.note(seen, "thinking")
        for player, one in seen.items():
            self._handle.send_select_action(
                player,
                one.observation,
                legal_actions=one.legal,
                info=one.info or None,
                text=one.text,
                action=chosen.get(player, UNSET),
            )
        return self._replies(seen, "action_selected", timeout_s)

    def _replies(
        self, players: Iterable[str], expected: str, timeout_s: float
    ) -> dict[str, Record]:
        """Return the answer of each; raise GameFailedError if one has none."""
        replies = self._handle.poll_all_responses(timeout_s)
        for player in players:
            # Paid for, whatever becomes of it.
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
        """Raise GameFailedError if a player's worker has died, although it is not its turn.

        Only where a person may be asked, who takes long: elsewhere it is noticed when its turn comes, and
        not in a step that depends on the moment.
        """
        if self._choose is None:
            return
        lost = {}
        for player, handle in self._handle.player_handles.items():
            if not handle.is_running:
                try:
                    handle.try_read_response(0.0)
                except WorkerDiedError as error:
                    lost[player] = {"message": str(error)}
        if lost:
            self.note(lost, "died")
            why = "; ".join(self._why(player, reply) for player, reply in lost.items())
            raise GameFailedError(why, frozenset(lost))

    def _why(self, player: str, reply: Mapping[str, Any]) -> str:
        said = str(reply.get("message", f"answered {reply.get('type')!r}"))
        # Records of the same script are to be the same.
        pid = self._handle.player_handles[player].pid
        said = " ".join(said.replace(f"process {pid} ", "its process ").split())
        return f"{self.name_of(player)}: {said}"
