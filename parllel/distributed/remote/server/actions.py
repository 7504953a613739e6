"""Actions of an agent server, independent of the wire format.

request threads   Actions.handle, concurrently
                    initialize_agents, act, dispose   the agent of a session, in the SessionStore
                    run, evaluate, step, load         a separate environment per request; bounded number
closing thread    Actions.close: closes the sessions and the agents of episodes in progress
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.agent_context import AgentContext
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.environment import Environment, make
from parllel.distributed.remote.evaluate import evaluate
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.games.registry import environments
from parllel.distributed.remote.server.arguments import Arguments
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.remote.server.session import Session, SessionContext
from parllel.distributed.remote.server.sessions import DEFAULT, SessionStore
from parllel.distributed.web.web_error import WebError
from parllel.distributed.wire.json_text import json_bytes
from parllel.errors import ClosedError
from parllel.types import Closeable

NOT_INITIALIZED = "No agent initialized. Call initialize_agents first."
# Allowed fields by action. Unknown fields are refused, as a misspelled one would silently mean the default.
# `debug`, which kaggle-environments' clients may send, is accepted and ignored: the operator decides.
_MADE = ("environment", "configuration", "info", "debug")
_POSITION = (*_MADE, "state", "steps", "logs")
_FIELDS = {
    name: frozenset(("action", "session", *fields))
    for name, fields in {
        "act": (*_MADE, "state", "observations", "agents"),
        "dispose": _MADE,
        "evaluate": (*_POSITION, "agents", "episodes", "statuses"),
        "initialize_agents": (*_MADE, "agents"),
        "list": _MADE,
        "load": (*_POSITION, "render"),
        "run": (*_POSITION, "agents", "render"),
        "step": (*_POSITION, "actions", "agents"),
    }.items()
}
_MAX_EPISODES = 10_000  # of one request


class Actions(Closeable):
    """Actions that clients of an agent server can request by name. Thread-safe.

    Each action takes the fields of the request as a dict, and returns JSON values or text.

    Args:
        permissions: agents that requests may name.
        sessions: maximum number of sessions.
        idle_s: time in seconds after which an unused agent is closed.
        episodes: maximum number of requests that play episodes at the same time.
        settings: permissions and limits of agents' processes. By default they may not write below the current
            folder; otherwise the defaults of `Agent`.
        debug: whether agents' output is repeated on this process's standard error.
        logs: whether clients receive agents' output and the tracebacks of their errors.
    """

    def __init__(
        self,
        permissions: Permissions | None = None,
        *,
        sessions: int = 64,
        idle_s: float = 3600.0,
        episodes: int = 4,
        settings: AgentSettings | None = None,
        debug: bool = False,
        logs: bool = False,
    ) -> None:
        self._logs = logs
        self._permissions = permissions or Permissions()
        self._sessions = SessionStore(sessions, idle_s)
        self._episodes = threading.BoundedSemaphore(episodes)
        self._playing: set[Agent] = set()
        self._closed = False
        self._settings = settings or AgentSettings(writable=())
        self._debug = debug
        self._by_name: dict[str, Callable[[dict[str, Any]], Any]] = {
            "act": self.action_act,
            "dispose": self.action_dispose,
            "evaluate": self.action_evaluate,
            "initialize_agents": self.action_initialize_agents,
            "list": self.action_list,
            "load": self.action_load,
            "run": self.action_run,
            "step": self.action_step,
        }

    def handle(self, args: dict[str, Any]) -> Any:
        """Carry out the action named by `args["action"]`.

        Raises:
            WebError: with the status and the message of the reply.
        """
        name = args.get("action")
        action = self._by_name.get(name) if isinstance(name, str) else None
        if action is None:
            known, got = ", ".join(self._by_name), "nothing" if name is None else ascii(name)[:80]
            raise WebError(400, f"action: expected one of {known}, got {got}")
        unknown = args.keys() - _FIELDS[str(name)]
        if unknown:
            expected = ", ".join(sorted(_FIELDS[str(name)] - {"action", "debug"}))
            got = ", ".join(ascii(field)[:80] for field in sorted(unknown)[:5])
            raise WebError(400, f"{name}: unknown fields {got}; expected {expected}")
        return action(args)

    def load_agent(self, raw: Any, environment: str, configuration: dict[str, Any] | None) -> None:
        """Build the default session's agent, bypassing the permissions. Raises as `Agent`."""
        self._sessions.put(DEFAULT, self._new_session(raw, environment, configuration, None))

    def action_list(self, args: dict[str, Any]) -> list[str]:
        """Return the names of the environments."""
        return environments()

    def action_initialize_agents(self, args: dict[str, Any]) -> dict[str, Any]:
        """Build the agent of a session, replacing its current one."""
        given = Arguments(args)
        raw = given.only_agent()
        self._initialize(given, raw)
        return {"status": "initialized", "agent": raw}

    def action_act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the action of a session's agent for `state.observation`, or for each of `observations`."""
        given = Arguments(args)
        session = self._sessions.get(given.session())
        if given.has("agents"):
            raw, name = given.only_agent(), given.environment()
            if session is None or (session.known_as, session.context.name) != (repr(raw), name):
                session = self._initialize(given, raw)
        if session is None:
            # With status 200: kaggle-environments' clients take any other for a broken server.
            return {"error": NOT_INITIALIZED}
        try:
            return self._act(session, given)
        except ClosedError:
            # Disposed, replaced or reaped while this request waited for earlier ones.
            return {"error": NOT_INITIALIZED}

    def action_evaluate(self, args: dict[str, Any]) -> Any:
        """Return the rewards of each episode, or dicts of rewards and statuses with `statuses`."""
        given = Arguments(args)
        episodes = given.integer("episodes", 1, 1, _MAX_EPISODES)
        with self._environment(given) as environment, self._refusing():
            return evaluate(
                given.environment(),
                self._allowed_agents(given, environment),
                given.mapping("configuration"),
                episodes=episodes,
                steps=given.steps(),
                debug=self._debug,
                statuses=given.flag("statuses"),
                on_episode=self._check_not_abandoned,
                settings=self._settings,
            )

    def action_run(self, args: dict[str, Any]) -> Any:
        """Play an episode and return it, rendered as `render` requests."""
        given = Arguments(args)
        with self._environment(given) as environment, self._refusing():
            mode = given.render_mode()
            agents = environment.initialize_agents(self._allowed_agents(given, environment))
            with self._playing_with(agents):
                environment.run(agents, on_step=self._check_not_abandoned)
            if mode == "json" and self._logs:
                return json_bytes({**environment.to_json(), "logs": environment.logs}).decode()
            return environment.render(mode)

    def action_step(self, args: dict[str, Any]) -> Any:
        """Return the state after `steps` or `state`, given `actions` or the `agents` that choose them."""
        given = Arguments(args)
        with self._environment(given) as environment, self._refusing():
            if given.has("actions"):
                return environment.step(given.items("actions"))
            agents = environment.initialize_agents(self._allowed_agents(given, environment))
            with environment.runner(agents) as runner:
                actions, logs = runner.act()
            return environment.step(actions, logs)

    def action_load(self, args: dict[str, Any]) -> Any:
        """Rebuild the episode of `steps` and return it, rendered as `render` requests."""
        given = Arguments(args)
        with self._environment(given) as environment, self._refusing():
            return environment.render(given.render_mode())

    def action_dispose(self, args: dict[str, Any]) -> str:
        """Close the agent of a session."""
        ended = self._sessions.remove(Arguments(args).session())
        return "Successfully disposed" if ended else "Already disposed"

    def close(self) -> None:
        """Close all agents and stop episodes in progress. Idempotent."""
        # Set before `_playing` is read: see `_playing_with`.
        self._closed = True
        self._sessions.close()
        # An episode checks `_closed` between steps only, so that an agent that hangs would keep it from
        # ending.
        for agent in list(self._playing):
            agent.close()

    def _act(self, session: Session, given: Arguments) -> dict[str, Any]:
        observations = given.observations()
        with session.acting():
            self._configure(session, given)
            if observations is None:
                action, log = session.agent.act(given.observation())
                return self._logged(_single_reply(action), log)
            if not observations:
                return {"actions": [], "recurrent": session.agent.recurrent}
            actions, log = session.agent.act_batch(observations)
            return self._logged(_batch_reply(actions), log)

    def _logged(self, reply: dict[str, Any], log: Any) -> dict[str, Any]:
        return {**reply, "log": log} if self._logs else reply

    def _initialize(self, given: Arguments, raw: Any) -> Session:
        name = given.session()
        # Before the agent is built, which may start a process. `put` checks again, under its lock.
        self._sessions.check_room(name)
        session = self._new_session(
            raw, given.environment_to_make(), given.mapping("configuration"), self._permissions
        )
        session.requested = repr(given.mapping("configuration"))
        self._sessions.put(name, session)
        return session

    def _new_session(
        self,
        raw: Any,
        name: str,
        configuration: dict[str, Any] | None,
        permissions: Permissions | None,
    ) -> Session:
        if permissions is None:
            context = self._context(name, configuration)
            return Session("", self._agent(raw, context), context)
        with self._refusing():
            context = self._context(name, configuration)
            allowed = permissions.allowed(raw, context)
            return Session(repr(raw), self._agent(allowed, context), context)

    def _agent(self, raw: Any, context: SessionContext) -> Agent:
        return Agent(raw, context, self._settings)

    def _context(self, name: str, configuration: dict[str, Any] | None) -> SessionContext:
        with make(name, configuration, debug=self._debug) as made:
            return SessionContext(made.name, made.configuration, made.agents, self._debug)

    def _configure(self, session: Session, given: Arguments) -> None:
        """Apply the configuration of this request to the agent, validating it only when it changes."""
        # Not locked: of two requests at once, the agent's next act uses the configuration of either.
        if given.has("environment") and given.environment() != session.context.name:
            raise WebError(409, f"the agent was initialised for {session.context.name!r}")
        requested = given.mapping("configuration")
        # Compared as text, in which 1, 1.0 and true differ.
        if requested is not None and repr(requested) != session.requested:
            with self._refusing():
                context = self._context(session.context.name, requested)
            session.context.configuration = context.configuration
            session.requested = repr(requested)

    def _allowed_agents(self, given: Arguments, environment: AgentContext) -> list[Any]:
        return [
            None if raw is None else self._permissions.allowed(raw, environment)
            for raw in given.items("agents")
        ]

    @contextlib.contextmanager
    def _environment(self, given: Arguments) -> Iterator[Environment]:
        """Create the environment of a request, within the limit on concurrent episodes."""
        # Refused rather than queued: threads that wait here would be missing for requests to act.
        if not self._episodes.acquire(blocking=False):
            message = "other episodes are being played; try again later"
            raise WebError(503, message, ((b"retry-after", b"1"),))
        try:
            with self._refusing():
                environment = make(
                    given.environment_to_make(),
                    given.mapping("configuration"),
                    info=given.mapping("info"),
                    steps=given.steps(),
                    logs=given.list_or_none("logs"),
                    debug=self._debug,
                    settings=self._settings,
                )
            with environment:
                yield environment
        finally:
            self._episodes.release()

    @contextlib.contextmanager
    def _playing_with(self, agents: list[Agent | None]) -> Iterator[None]:
        """Register agents of an episode, so that `close` can interrupt them."""
        playing = {agent for agent in agents if agent is not None}
        # Registered before `_closed` is checked, while `close` sets that before it reads these: whichever
        # thread comes second sees the other's write, and no episode outlives the server.
        self._playing |= playing
        try:
            self._check_not_abandoned()
            yield
        except ClosedError:
            self._check_not_abandoned()  # closed by `close` between two acts: a 503
            raise
        finally:
            self._playing -= playing

    def _check_not_abandoned(self, *_: Any) -> None:
        """Abort the episode if the server is shutting down."""
        if self._closed:
            raise WebError(503, "the server is shutting down")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn errors caused by a request into a 400 or 404 with their message."""
        try:
            yield
        except WebError:
            raise
        except FileNotFoundError as error:
            raise WebError(404, _one_line(error)) from error
        # Code of agents and of users' environments may raise anything, which is not a bug of the server.
        except Exception as error:
            raise WebError(400, _one_line(error)) from error


def _one_line(error: Exception) -> str:
    known = isinstance(error, (ValueError, OSError))
    text = str(error) if known else f"{type(error).__name__}: {error}"
    return AgentFailure("ERROR", text).reason


def _as_action(failure: AgentFailure) -> str:
    """Return the form of a failure that kaggle-environments' clients expect in place of an action."""
    if failure.status == "TIMEOUT":
        return "DeadlineExceeded"
    return f"BaseException::{failure.reason}"


def _single_reply(action: Any) -> dict[str, Any]:
    if not isinstance(action, AgentFailure):
        return {"action": action}
    return {"action": _as_action(action), "status": action.status, "reason": action.reason}


def _batch_reply(actions: list[Any]) -> dict[str, Any]:
    failures = {
        str(i): {"status": action.status, "reason": action.reason}
        for i, action in enumerate(actions)
        if isinstance(action, AgentFailure)
    }
    replies = [
        _as_action(action) if isinstance(action, AgentFailure) else action for action in actions
    ]
    return {"actions": replies, "failures": failures} if failures else {"actions": replies}
