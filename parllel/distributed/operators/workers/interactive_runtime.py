"""Runtime of a worker: an environment and an agent, driven by commands.

    driver    one line per command   -->  answer(line)  -->  environment, agent
              <-- one line per reply; `step` has two where the episode ends

no episode  -- reset --> playing -- step --> playing ... -- step, episode_end --> ended
ended, failed  -- reset --> playing;  a step is refused
playing  -- the environment raises --> failed;  the agent raises --> playing, as nothing has moved
"""

from __future__ import annotations

import enum
import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from msgspec import UNSET

from parllel.distributed.operators.protocol.frames import (
    can_render,
    check_can_render,
    frame_of,
    text_frame,
)
from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.protocol.message_lines import (
    MessageError,
    read_command,
    write_reply,
)
from parllel.distributed.operators.protocol.messages import (
    PROTOCOL,
    EpisodeEndReply,
    ErrorReply,
    InitAgentCommand,
    PingCommand,
    PongReply,
    ReadyReply,
    ResetCommand,
    SelectActionCommand,
    StepCommand,
    StepReply,
    StopCommand,
    StoppedReply,
)
from parllel.distributed.operators.workers.player_runtime import (
    PlayerRuntime,
    agent_seed,
    show_decision,
)
from parllel.distributed.operators.workers.termination_signal import TerminationSignal
from parllel.distributed.operators.workers.worker_agent import (
    Decision,
    checked_decision,
    worker_agent_of,
)
from parllel.envs.rewards import reward_of

_MAX_CHARACTERS = 2000  # of error messages, and of observations shown as text
_MAX_SPACE_CHARACTERS = 200


class InteractiveRuntime:
    """Answers commands, one per line, once `bind` has been called.

    Args:
        agent: a WorkerAgent, a Policy, or a function of an observation.
        env_factory: function that makes the environment. None for a worker that only plays games.
        run_id, env_id: ids reported in the `ready` reply. `env_id` defaults to the id of the
            environment.
        max_steps: maximum number of steps in an episode. A reset command may override it.

    Attributes:
        ended: True once a `stop` command has been answered.
    """

    def __init__(
        self,
        agent: Any,
        env_factory: Callable[[], gym.Env[Any, Any]] | None = None,
        *,
        run_id: str = "",
        env_id: str | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.ended = False
        self._agent = worker_agent_of(agent)
        # Any worker may become a player, even one with an environment: `init_agent` decides.
        self._player = PlayerRuntime(self._agent)
        self._run_id, self._env_id, self._max_steps = run_id, env_id, max_steps
        self._env: gym.Env[Any, Any] | None = None
        self._playing = False
        # While its step is in progress: if that fails, the error reply reports what the decision cost.
        self._decided: Decision | None = None
        self._why_not = "step: send reset first"
        self._handlers: dict[type, Callable[[Any], Any]] = {
            StepCommand: self._step,
            ResetCommand: self._reset,
            StopCommand: self._stop,
            PingCommand: lambda command: PongReply(),
            InitAgentCommand: self._player.init_agent,
            SelectActionCommand: self._player.select_action,
        }
        self._env_factory = env_factory

    def make_env(self) -> None:
        """Make the environment, unless the worker has none."""
        # Separate from `bind`, so that a failure is reported as the environment's and not as the policy's.
        if self._env_factory is not None:
            self._env = self._env_factory()
            if self._env_id is None:
                spec = self._env.spec
                self._env_id = spec.id if spec is not None else type(self._env.unwrapped).__name__

    def bind(self) -> None:
        """Bind the agent to the environment's spaces. Makes the environment if necessary."""
        if self._env is None:
            self.make_env()
        if self._env is not None:
            self._given = GivenAction(self._env.action_space)
            self._agent.bind(self._env.observation_space, self._env.action_space)

    # ------------------------------------------------------------------ commands

    def answer(self, line: bytes) -> bytes:
        """Return the replies to a command line, as lines. Any failure becomes an `error` reply."""
        message_id: Any = UNSET
        try:
            command = read_command(line)
            message_id = command.id  # before the handler, whose failure is reported under it
            replies = self._handlers[type(command)](command)
            if type(replies) is tuple:
                first, last = replies
                first.id = last.id = message_id
                # One write for both: the driver never sees the end of an episode without its last step.
                return write_reply(first) + write_reply(last)
            replies.id = message_id
            return write_reply(replies)
        except (KeyboardInterrupt, TerminationSignal):
            # Raised wherever the handler was, also between a step and its reply. The driver learns
            # of it by the closing of the pipe.
            raise  # the worker ends; no reply is due
        # BaseException: an environment or agent that calls `exit` must not end the worker, and extensions
        # written in Rust raise their own BaseException.
        except BaseException as error:
            if isinstance(error, MessageError) and error.id is not None:
                # The line was unreadable as a whole, but its id was found: the driver can match the error.
                message_id = error.id
            return self.refusal(error, message_id)

    def refusal(self, error: BaseException, message_id: Any = UNSET) -> bytes:
        """Return the `error` reply for an exception. The traceback goes to the log."""
        # A MessageError is the driver's mistake, and our stack says nothing about it.
        if not isinstance(error, MessageError):
            print_traceback(error)
        reply = ErrorReply(message=error_text(error), id=message_id)
        # Tokens were spent on the decision even if it failed.
        decision = getattr(error, "decision", None) or self._decided
        if isinstance(decision, Decision):
            # TypeError: a custom agent's decision may hold values that JSON cannot.
            with suppress(TypeError):
                show_decision(checked_decision(decision), reply)
        self._decided = None  # reported; a later error must not count these tokens again
        return write_reply(reply)

    def _reset(self, command: ResetCommand) -> ReadyReply:
        env = self._environment("reset")
        seed = command.seed if isinstance(command.seed, int) else None
        limit = command.max_steps if isinstance(command.max_steps, int) else self._max_steps
        if command.frame and not self._agent.takes_actions:
            # Before the reset: a refused command must not change the episode.
            check_can_render(env)
        # Not playing until all of the reset has succeeded: half-reset environments are not stepped.
        self._playing, self._why_not = False, "step: the reset failed; send another"
        self._observation, self._info = env.reset(seed=seed)
        # Seeded separately, so that environment and agent draw different numbers from the same seed.
        own = command.agent_seed
        self._agent.reset(agent_seed(own if isinstance(own, int) else seed))
        ready = ReadyReply(
            run_id=self._run_id,
            env_id=self._env_id,
            seed=seed,
            observation_shape=_shape(env.observation_space),
            protocol=PROTOCOL,
            action_space=_action_space(env.action_space),
        )
        names = action_names(env)
        if names is not None:
            ready.action_names = names
        self._caption(env, ready)
        if command.frame:
            ready.render_payload = self._frame(env, str(command.frame))
        self._n, self._total = 0, 0.0
        self._limit = math.inf if limit is None else limit
        self._playing = True  # last: an exception above leaves the reset failed
        return ready

    def _step(self, command: StepCommand) -> StepReply | tuple[StepReply, EpisodeEndReply]:
        if not self._playing:
            self._environment("step")  # a player gets the more specific error
            raise MessageError(self._why_not)
        env: Any = self._env
        if command.frame and not self._agent.takes_actions:
            check_can_render(env)
        # Everything up to `env.step` may fail and leave the episode as it was: the driver can step again.
        begun = time.perf_counter()  # only the agent's time; the driver measures the round trip
        if command.action is UNSET:
            decision = checked_decision(self._agent.decide(self._observation, self._info))
        elif self._agent.takes_actions:
            # A person chose elsewhere. The action is checked but not clipped: they can be asked again.
            decision = Decision(self._action_brought(command.action))
        else:
            raise MessageError("step: action: expected none, because this operator decides itself")
        took = time.perf_counter() - begun
        self._decided = decision
        action = self._given.of(decision.action)
        # Encoded before the step, which cannot be undone if the reply then fails.
        shown = self._given.to_json(action)
        # From here on the environment has moved. If it or the reply fails, only a reset brings it back.
        self._playing, self._why_not = False, "step: the environment failed; send reset"
        self._observation, reward, terminated, truncated, self._info = env.step(action)
        reward, terminated = reward_of(reward, str(self._env_id)), bool(terminated)
        # JSON cannot hold it, and neither could any later sum of rewards.
        if not math.isfinite(reward):
            raise ValueError(f"the environment's reward: expected a finite number, got {reward}")
        self._n += 1
        self._total += reward
        # The limit of the reset holds in addition to the environment's own.
        truncated = bool(truncated) or (self._n >= self._limit and not terminated)
        step = StepReply(
            step_index=self._n,
            action=shown,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            episode_reward=self._total,
            decide_s=took,
        )
        show_decision(decision, step)
        self._caption(env, step)
        ended = terminated or truncated
        # If drawing fails, the environment has moved all the same, and the reply is lost.
        if command.frame:
            step.render_payload = self._frame(env, str(command.frame))
        # An environment that cannot render is no error here: when the driver asked for a last frame it could
        # not know that this step ends the episode.
        elif ended and command.last_frame and self._shows(env):
            step.render_payload = self._frame(env, str(command.last_frame))
        self._decided = None
        if not ended:
            self._playing = True
            return step
        self._why_not = "step: the episode has ended; send reset"
        return step, self._episode_end(terminated, truncated)

    def _caption(self, env: gym.Env[Any, Any], reply: ReadyReply | StepReply) -> None:
        # MiniGrid's instruction, which its pictures do not show.
        mission = getattr(env.unwrapped, "mission", None) if self._agent.takes_actions else None
        if isinstance(mission, str):
            reply.text = mission

    def _shows(self, env: gym.Env[Any, Any]) -> bool:
        return self._agent.takes_actions or can_render(env)

    def _frame(self, env: gym.Env[Any, Any], mode: str) -> dict[str, Any]:
        if self._agent.takes_actions and not can_render(env):
            # A person needs something to decide by.
            return text_frame(str(self._observation)[:_MAX_CHARACTERS])
        return frame_of(env, mode)

    def _action_brought(self, values: Any) -> Any:
        try:
            return self._given.from_json(values)
        except ValueError as error:
            raise MessageError(f"step: action: {error}") from None

    def _episode_end(self, terminated: bool, truncated: bool) -> EpisodeEndReply:
        # Our own sums, which the driver compares with what it has counted.
        end = EpisodeEndReply(
            total_reward=self._total,
            episode_length=self._n,
            terminated=terminated,
            truncated=truncated,
        )
        for name in ("is_success", "success"):
            # Both spellings are in use; the second wins.
            success = self._info.get(name) if isinstance(self._info, Mapping) else None
            if isinstance(success, (bool, int, float, np.generic)):
                end.success = bool(success)
        return end

    def _stop(self, command: StopCommand) -> StoppedReply:
        self.ended = True  # the serving loop leaves after it has written the reply
        return StoppedReply()

    def _environment(self, doing: str) -> gym.Env[Any, Any]:
        if self._env is None:
            raise MessageError(f"{doing}: this worker only plays games; send init_agent")
        return self._env

    def close(self) -> None:
        """Close the environment and the agent, even if one of them fails. Idempotent."""
        env, self._env = self._env, None  # taken first, so that a second call does nothing
        self._playing = False
        try:
            if env is not None:
                env.close()
        finally:
            self._agent.close()


def print_traceback(error: BaseException) -> None:
    """Print the traceback of an exception to standard error, the worker's log."""
    with suppress(Exception):  # standard error may be closed
        traceback.print_exception(error, file=sys.stderr)


def error_text(error: BaseException) -> str:
    """Return the text of an exception for a reply, without its traceback."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be converted to text)"
    if not isinstance(error, MessageError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # Unpaired surrogates in a message would make the reply impossible to encode.
    return text[:_MAX_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _shape(space: gym.Space[Any]) -> list[int] | None:
    return None if space.shape is None else [int(n) for n in space.shape]


def _action_space(space: gym.Space[Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"text": str(space)[:_MAX_SPACE_CHARACTERS]}
    if isinstance(space, gym.spaces.Discrete):
        shown.update(n=int(space.n), start=int(space.start))
    return shown


def action_names(env: Any) -> list[str] | None:
    """Return the names of actions in Atari and MiniGrid environments, or None for most others."""
    inner: Any = getattr(env, "unwrapped", env)
    meanings = getattr(inner, "get_action_meanings", None)
    if callable(meanings):
        return [str(name) for name in meanings()]
    kinds = getattr(inner, "actions", None)
    if isinstance(kinds, type) and issubclass(kinds, enum.Enum):
        return [kind.name for kind in kinds]
    return None
