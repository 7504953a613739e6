"""A policy that acts on a server.

this process                                      the server
act: rows of N environments --one request-->      the session's agent, in a process of its own
     N actions              <-- one reply ---
remembers: how many steps the episode             remembers: what a recurrent policy does, by env_index
           of each environment has
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers.paths import leaf_paths
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.spaces import example_of
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.remote_reply import actions_in, posted
from parllel.distributed.web.http_client import HttpClient, HttpError
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.space_json import from_json, to_json
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import ClosedError, ParllelError
from parllel.policies.policy import Policy
from parllel.types import State, Tree

# What a server takes by default, less what stands around the rows.
_MAX_BYTES = (1 << 20) - 4096
_MAX_ITEMS = Limits().items - 64
_ITEMS_OF_ROW = 8  # beside the numbers of an observation
_TRY_LATER = (429, 503)
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0


class RemoteError(ParllelError, RuntimeError):
    """A server of agents could not be reached, refused, or had no actions; names its URL and what it said."""


class RemotePolicy(Policy):
    """Act with the agent of a server, such as a run that `parllel remote serve --agent RUN` serves.

    One request asks for the actions in all environments of a call; what is too much for one is sent as
    several. Observations and actions are JSON by their spaces, which numbers pass through unchanged. Whether
    the agent remembers episodes is asked for at the start. What it remembers stays on the server, apart from
    what it remembers for other clients, and cannot be saved: after `load_state` its episodes begin anew.
    Seeds are not sent. Threads need a policy each.

    Args:
        url: of the server, used as it is. Its password, if it has one, is sent and never shown.
        observation_space, action_space: of one environment, as they were for the agent.
        session: of the server's agents, by name; None for its only one.
        token: of the server, sent as Bearer; `parllel.distributed.web.token_file` takes one from a file.
        timeout_s: for the actions of one call to `act`, and for the first answer.
        reconnect_s: for how long it tries again if the server cannot be reached, loses the connection, or has
            too much to do. An agent that remembers episodes is asked again only in the last case, as it may
            have acted already.

    Raises:
        TypeError: without spaces.
        ValueError: if the URL cannot be one, or a time is below 0.
        RemoteError: if the server has no agent, or no actions; from `act` too.
    """

    def __init__(
        self,
        url: str,
        observation_space: gym.Space[Any] | None,
        action_space: gym.Space[Any] | None,
        *,
        session: str | None = None,
        token: str | None = None,
        timeout_s: float = 60.0,
        reconnect_s: float = 10.0,
    ) -> None:
        client = HttpClient(url)
        self.url = client.shown
        if observation_space is None or action_space is None:
            raise TypeError(
                f"RemotePolicy: {self.url}: expected the spaces of the environment, by which observations "
                "and actions become JSON, got None"
            )
        for name, value in (("timeout_s", timeout_s), ("reconnect_s", reconnect_s)):
            if not value >= 0:
                raise ValueError(f"RemotePolicy: {name}: expected 0 or more seconds, got {value!r}")
        self.observation_space, self.action_space = observation_space, action_space
        self._observed: gym.Space[Any] = observation_space
        self._space: gym.Space[Any] = action_space
        self._raw_url, self._client = url, client
        self._pid = os.getpid()
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._begin = json_bytes({"action": "act", **({"session": session} if session else {})})
        self._timeout_s, self._reconnect_s = timeout_s, reconnect_s
        # Steps of the present episodes, by environment.
        self._steps: dict[int, int] = {}
        self._closed = False
        example = example_of(observation_space)
        self._items = _ITEMS_OF_ROW + sum(np.size(leaf) for _, leaf in buffer_leaves(example))
        try:
            reply = self._asked([])
        except BaseException:
            self.close()
            raise
        self.recurrent = isinstance(reply, Mapping) and reply.get("recurrent") is True
        # Two clients of one agent number their environments alike; their memories must stay apart.
        self._offset = secrets.randbits(32) << 20 if self.recurrent else 0

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] for observations [N, ...].

        Raises:
            ValueError: if the observations do not fit the space, or `env_indices` are not N different ints.
            RemoteError: if an environment has no action; says why.
            ClosedError: after `close`.
        """
        numbers = [int(number) for number in env_indices]
        n = len(next(leaf_paths(observation))[1])
        if len(set(numbers)) != n or len(numbers) != n:
            raise ValueError(f"env_indices: expected {n} different ints, got {env_indices!r}")
        if n == 0:
            return buffer_map(
                lambda leaf: np.asarray(leaf)[np.newaxis][:0], example_of(self._space)
            )
        rows = [self._row(observation, i, number) for i, number in enumerate(numbers)]
        actions: list[Any] = []
        for some in self._requests(rows):
            found = actions_in(self._asked(some), len(some))
            actions += [self._action(one, numbers[len(actions) + i]) for i, one in enumerate(found)]
        # Only now: after an error the same steps may be asked for again.
        for number in numbers:
            self._steps[number] = self._steps.get(number, 0) + 1
        return buffer_map(lambda *leaves: np.stack(leaves), *actions)

    def _row(self, observation: Tree, i: int, number: int) -> bytes:
        one = buffer_map(lambda leaf: np.asarray(leaf)[i], observation)
        try:
            value = to_json(self._observed, one)
        except ValueError as error:
            raise ValueError(f"observation of environment {number}: {error}") from error
        step = self._steps.get(number, 0)
        return json_bytes({"observation": value, "step": step, "env_index": self._offset + number})

    def _requests(self, rows: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the rows of one request after the other."""
        most = max(1, _MAX_ITEMS // self._items)
        some: list[bytes] = []
        nbytes = 0
        for row in rows:
            if some and (len(some) == most or nbytes + len(row) > _MAX_BYTES):
                yield some
                some, nbytes = [], 0
            some.append(row)
            nbytes += len(row) + 1
        yield some

    def _action(self, answer: Any, number: int) -> Tree:
        if isinstance(answer, AgentFailure):
            raise RemoteError(
                f"{self.url}: no action for environment {number}: {answer.status}: {answer.reason}"
            )
        try:
            return from_json(self._space, answer, check_bounds=True)
        except ValueError as error:
            raise RemoteError(
                f"{self.url}: expected an action of {self._space} for environment {number}: {error}"
            ) from None

    # ------------------------------------------------------------------ requests

    def _asked(self, rows: list[bytes]) -> Any:
        """Return the reply to one request, which may be made several times."""
        body = b'%b,"observations":[%b]}' % (self._begin[:-1], b",".join(rows))
        last = time.monotonic() + self._reconnect_s
        pause_s = _FIRST_PAUSE_S
        while True:
            again, problem = True, ""
            try:
                reply = posted(self._connected(), body, self._headers, self._timeout_s)
            except TimeoutError as error:
                raise RemoteError(str(error)) from None
            except HttpError as error:
                # An agent with a memory may have taken its step before the connection was lost.
                again, problem = not (self.recurrent and rows), str(error)
            else:
                if reply.status == 200:
                    return self._parsed(reply.body)
                again = reply.status in _TRY_LATER
                problem = f"{self.url}: answered with status {reply.status}{_said(reply.body)}"
            if not again or time.monotonic() + pause_s > last:
                raise RemoteError(problem)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _connected(self) -> HttpClient:
        """Return the client of this process: a fork must not share connections with its parent."""
        if self._closed:
            raise ClosedError(f"RemotePolicy: {self.url}: used after close()")
        if self._pid != os.getpid():
            self._pid, self._client = os.getpid(), HttpClient(self._raw_url)
        return self._client

    def _parsed(self, data: bytes) -> Any:
        try:
            reply = parse_json(data)
        except WireError as error:
            raise RemoteError(f"{self.url}: answered with what is not JSON: {error}") from None
        if isinstance(reply, Mapping) and "error" in reply:
            raise RemoteError(f"{self.url}: answered: {reply['error']!s:.1000}")
        if not isinstance(reply, Mapping) or "actions" not in reply:
            raise RemoteError(
                f'{self.url}: expected "actions", as `parllel remote serve` answers to several '
                f"observations, got {reply!s:.200}"
            )
        return reply

    # ------------------------------------------------------------------ episodes

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Begin new episodes with the next actions. Seeds change nothing: what draws is on the server."""
        if env_indices is None:
            self._steps.clear()
        else:
            for number in env_indices:
                self._steps.pop(int(number), None)

    def state(self) -> State:
        """Return the steps of the present episodes."""
        return {"steps": {str(number): step for number, step in self._steps.items()}}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned; a policy with a memory, which cannot have it back, begins anew."""
        steps = {} if self.recurrent else state["steps"]
        self._steps = {int(number): int(step) for number, step in steps.items()}

    def close(self) -> None:
        """Close the connections; may be called twice. The server keeps its agent."""
        self._closed = True
        if self._pid == os.getpid():
            self._client.close()


def remote_policy(
    spec: str, *, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
) -> RemotePolicy:
    """Return the policy that a URL means to `policy_of`."""
    return RemotePolicy(spec, observation_space, action_space)


def _said(data: bytes) -> str:
    """Return the error in a reply, for a message."""
    try:
        reply = parse_json(data)
    except WireError:
        return ""
    said = reply.get("error") if isinstance(reply, Mapping) else None
    return "" if said is None else f": {said!s:.1000}"
