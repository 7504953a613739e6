"""Episodes of a single operator, played step by step and recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from msgspec import UNSET

from parllel.distributed.operators.experiments.episode_outcome import (
    MAX_STEPS,
    DecisionCounts,
    EpisodeOutcome,
    step_record,
)
from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle
from parllel.distributed.operators.protocol.choosing import Choose, Question, offered_actions
from parllel.distributed.operators.protocol.operator_config import OperatorConfig, step_timeout_of
from parllel.distributed.operators.viewers import EpisodeViewers, Viewer
from parllel.errors import BadReplyError, ClosedError, LineTooLongError, ParllelError

# Beginnings of error messages of our workers, by which they are recognised.
_NO_FRAME = "frame: expected an environment with the render mode"
# Only the worker knows whether a typed action is in the space. It reports that before anything is stepped.
_REFUSED = "step: action: "
_TOLERANCE = 1e-4  # sums in float32, or in another order, differ by less
Record = dict[str, Any]


class SingleEpisodes:
    """Plays the episodes of an operator whose worker steps the environment.

    Args:
        config: configuration of the operator.
        start_timeout_s: time limit in seconds for the reply to a reset. The first reset includes
            the start of the worker.
        step_timeout_s: time limit in seconds for the reply to a step. The default depends on the
            kind of the operator.
        viewers: receive the pictures that they want.
        choose: function that asks a person, for an operator of kind "human". With None, the worker
            asks at its terminal.
    """

    def __init__(
        self,
        config: OperatorConfig,
        *,
        start_timeout_s: float,
        step_timeout_s: float | None = None,
        viewers: Sequence[Viewer] = (),
        choose: Choose | None = None,
    ) -> None:
        self.config = config
        self._choose = choose if config.operator_type == "human" else None
        self._start_timeout_s = start_timeout_s
        self._step_timeout_s = step_timeout_of([config], step_timeout_s)
        self._viewers = viewers
        self.draws = True  # until the worker reports that its environment cannot render

    def play(
        self,
        handle: OperatorProcessHandle,
        episode: int,
        seed: int,
        *,
        agent_seed: int | None = None,
        before_step: Callable[[], None],
        record_step: Callable[[Record], None],
    ) -> list[EpisodeOutcome]:
        """Play an episode and return its outcome, in a list of one.

        If the worker dies, hangs or replies with an error, the outcome is "failed"; no exception is
        raised.

        Args:
            handle: handle of an interactive worker.
            episode: number of the episode.
            seed: seed of the environment.
            agent_seed: seed from which the agent's seed is derived. Default: `seed`.
            before_step: function called before each step. If it raises an exception, the episode
                ends and the exception is passed on.
            record_step: function called with the fields of each step.
        """
        played = _Episode(self, handle, episode, before_step, record_step)
        try:
            played.begin(seed, agent_seed)
            while not played.ended:
                before_step()
                played.step()
        except _EpisodeFailedError as failed:
            return [played.outcome(str(failed))]
        except (BadReplyError, LineTooLongError) as error:
            # Not lost: the worker lives, and its next reply can be told from this one's.
            return [played.outcome(_without_pid(error, handle.pid))]
        except ClosedError:
            raise  # the handle was closed on this side: the experiment is being stopped
        except (ParllelError, OSError) as error:
            return [played.outcome(_without_pid(error, handle.pid), lost=True)]
        return [played.outcome()]

    def close(self) -> None:
        """Do nothing, because the worker owns the environment."""


def _without_pid(error: Exception, pid: int) -> str:
    # Without process ids: two runs of a script must write the same telemetry.
    return " ".join(str(error).replace(f"process {pid} ", "its process ").split())


class _Contradictions:
    """Reports of a worker that differ from the driver's own count, at most one per field. The count wins."""

    def __init__(self) -> None:
        self._by_field: dict[str, str] = {}

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each contradiction so far."""
        return tuple(self._by_field.values())

    def note(self, field: str, reported: Any, counted: Any, source: str = "counted") -> None:
        """Record a reported value if it differs from the counted one.

        reported: None if the worker reports no value.
        source: origin of the other value.
        """
        if reported is None or reported == counted or field in self._by_field:
            return
        if isinstance(counted, float) and math.isclose(
            reported, counted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
        ):
            return
        self._by_field[field] = (
            f"its worker says {field} {_text(reported)}, {source} {_text(counted)}"
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)[:100]


class _AskedPerson:
    """A person who is asked for each action away from the worker's terminal.

    Args:
        config: of the operator; its settings may contain "keys" and "action_names".
        choose: asks the person.
        handle: of the person's worker, whose death ends the wait.
    """

    def __init__(
        self, config: OperatorConfig, choose: Choose, handle: OperatorProcessHandle
    ) -> None:
        self._choose, self._handle, self._keys = choose, handle, config.settings.get("keys")
        self._names = config.settings.get("action_names")
        self._question = Question(None, None, None)
        self._choice_name: str | None = None

    def see_ready(self, reply: Mapping[str, Any]) -> None:
        """Take the possible actions from `ready`."""
        space = reply.get("action_space")
        names = self._names or reply.get("action_names")
        actions = offered_actions(space, names=names, keys=self._keys)
        text = space.get("text") if isinstance(space, Mapping) else None
        self._question = Question(None, reply.get("text"), actions, text)

    def see_step(self, reply: dict[str, Any]) -> None:
        """Take the text from `step`, and set its `raw` to the name of the chosen action."""
        if self._choice_name is not None:
            reply.setdefault("raw", self._choice_name)
        self._question = self._question._replace(text=reply.get("text"))

    def choice(self, message: str | None = None) -> Any:
        """Ask the person and return the action as JSON values.

        message: why the worker refused the previous choice.

        Raises:
            WorkerDiedError: if the worker ends meanwhile.
            Exception: whatever `choose` raises, for example when the episode is given up.
        """
        (action,) = self._choose([self._question._replace(message=message)], self._look)
        self._choice_name = self._question.name_of(action)
        return action

    @staticmethod
    def is_refusal(message: str) -> bool:
        """Return whether an error of a step refuses the choice, so that another can be made."""
        return message.startswith(_REFUSED)

    def _look(self) -> None:
        if not self._handle.is_running:
            # Raises with the cause of the death.
            self._handle.try_read_response(0.0)


class _EpisodeFailedError(Exception):
    """Raised if an episode cannot go on although the worker answers."""


class _Episode:
    """State of one episode."""

    def __init__(
        self,
        episodes: SingleEpisodes,
        handle: OperatorProcessHandle,
        episode: int,
        before_step: Callable[[], None],
        record_step: Callable[[Record], None],
    ) -> None:
        self._handle, self._record_step, self._episodes = handle, record_step, episodes
        self._start_timeout_s = episodes._start_timeout_s
        self._step_timeout_s = episodes._step_timeout_s
        config = episodes.config
        self._viewers = EpisodeViewers(
            episodes._viewers, config.operator_id, str(config.env_id), episode
        )
        choose = episodes._choose
        self._person = None if choose is None else _AskedPerson(config, choose, handle)
        self._max_steps = config.max_steps
        self._length, self._reward = 0, 0.0
        self._counts = DecisionCounts()
        self._unplayed: Record = {}
        self._contradictions = _Contradictions()
        self._success: bool | None = None
        self._terminated = self._truncated = False

    @property
    def ended(self) -> bool:
        return self._terminated or self._truncated

    def begin(self, seed: int, agent_seed: int | None) -> None:
        """Reset the environment."""

        def send(frame: Any, last_frame: Any) -> None:
            self._handle.send_reset(
                seed, agent_seed=agent_seed, max_steps=self._max_steps, frame=frame
            )

        ready = self._answer(send, "ready", self._start_timeout_s)
        self._contradictions.note("seed", ready.get("seed"), seed, "asked")
        if self._person is not None:
            self._person.see_ready(ready)
        self._show(ready)

    def step(self) -> None:
        """Take a step and record it. After the last, read how the episode ended."""
        began = perf_counter()
        reply = self._stepped()
        latency_s = perf_counter() - began
        self._length += 1
        self._reward += reply["reward"]
        self._terminated, self._truncated = reply["terminated"], reply["truncated"]
        has_ended = self.ended
        if not has_ended and self._length == self._max_steps:
            self._truncated = True  # by us: a foreign worker may ignore the limit of the reset
        if self.ended:
            self._contradictions.note("episode_reward", reply["episode_reward"], self._reward)
        record = step_record(
            reply,
            step=self._length,
            terminated=self._terminated,
            truncated=self._truncated,
            episode_reward=self._reward,
            latency_s=latency_s,
        )
        if reply["step_index"] != self._length:
            self._contradictions.note("step_index", reply["step_index"], self._length)
            record["contradictions"] = self._contradictions.sentences
        self._counts.note(reply, record)
        self._record_step(record)
        self._show(reply, is_last=self.ended)
        # Only if the worker ended the episode: for one that we cut off, it sends no `episode_end`.
        if has_ended:
            self._end()
        elif self._length == MAX_STEPS and not self.ended:
            raise _EpisodeFailedError(
                f"the episode did not end within {MAX_STEPS:,} steps; set max_steps"
            )

    def _stepped(self) -> Record:
        """Return the reply to a step, asking a person for the action until it is accepted."""
        person, action, message = self._person, UNSET, None
        while True:
            if person is not None:
                action = person.choice(message)
            try:
                reply = self._answer(
                    lambda frame, last_frame, action=action: self._handle.send_step(  # type: ignore[misc]
                        frame=frame, last_frame=last_frame, action=action
                    ),
                    "step",
                    self._step_timeout_s,
                )
            except _EpisodeFailedError as failed:
                message = str(failed)
                if person is None or not person.is_refusal(message):
                    raise
                continue
            if person is not None:
                person.see_step(reply)
            return reply

    def _end(self) -> None:
        end = self._reply("episode_end", self._step_timeout_s)
        self._success = end.get("success")
        self._contradictions.note("total_reward", end["total_reward"], self._reward)
        self._contradictions.note("terminated", end["terminated"], self._terminated)
        self._contradictions.note("truncated", end["truncated"], self._truncated)
        # A worker that counts differently has not played the episode that it reports.
        if end["episode_length"] != self._length:
            raise _EpisodeFailedError(
                f"expected an episode_end with episode_length {self._length}, got "
                f"{end['episode_length']}"
            )

    def _reply(self, kind: str, timeout_s: float) -> Record:
        reply = self._handle.read_response(timeout_s)
        if reply["type"] == kind:
            return reply
        if reply["type"] == "error":
            self._unplayed = self._counts.unplayed(reply)
            raise _EpisodeFailedError(str(reply.get("message", "an error without a message")))
        raise _EpisodeFailedError(f"expected {kind!r}, got {reply['type']!r}")

    def _answer(self, send: Callable[[Any, Any], None], kind: str, timeout_s: float) -> Record:
        """Send a command, with a request for a picture if a viewer wants one, and return the reply."""
        wants, wants_last = self._viewers.ask()
        # The limit is known in advance. A worker that ignores it would not recognise this step as the last.
        if wants_last and self._length + 1 == self._max_steps:
            wants = True
        if not self._episodes.draws:
            wants = wants_last = False
        send("png" if wants else None, "png" if wants_last and not wants else None)
        try:
            return self._reply(kind, timeout_s)
        except _EpisodeFailedError as error:
            # The worker refused before it reset or stepped anything, so the command can be sent again.
            if not (wants and _NO_FRAME in str(error)):
                raise
        self._episodes.draws = False
        send(None, None)
        return self._reply(kind, timeout_s)

    def _show(self, reply: Record, *, is_last: bool = False) -> None:
        self._viewers.show(self._length, reply.get("render_payload"), is_last=is_last)

    def outcome(self, failure: str | None = None, *, lost: bool = False) -> EpisodeOutcome:
        """Return the outcome of the episode."""
        return EpisodeOutcome(
            "ended" if failure is None else "failed",
            self._reward,
            self._length,
            self._terminated,
            self._truncated,
            self._success,
            failure,
            self._counts.sums,
            self._unplayed,
            lost=lost,
            contradictions=self._contradictions.sentences,
        )
