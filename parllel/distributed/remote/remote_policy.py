"""Policy that acts on a server.

this process                                      the server
act: rows of N environments --one request-->      the session's agent, in a separate process
     N actions              <-- one reply ---
keeps the number of steps in the episode          keeps the recurrent state by env_index
of each environment
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

# A server's default limits, less the part of a request around the rows.
_MAX_BYTES = (1 << 20) - 4096
_MAX_ITEMS = Limits().items - 64
_ITEMS_OF_ROW = 8  # values of a row besides the numbers of its observation
_TRY_LATER = (429, 503)
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0


class RemoteError(ParllelError, RuntimeError):
    """An agent server is unreachable, refused a request, or returned no action.

    The message gives the URL and the reason.
    """


class RemotePolicy(Policy):
    """Policy that acts with the agent of a server, such as `parllel remote serve --agent RUN`.

    One request gets the actions for all environments of a call, or several if it would be too large.
    Observations and actions are sent as JSON according to their spaces, which preserves numbers exactly. The
    server reports at the start whether the agent is recurrent. Its recurrent state stays on the server,
    separate from that of other clients, and cannot be saved: after `load_state` its episodes start again.
    Seeds are not sent. Not thread-safe.

    Args:
        url: URL of the server, used unchanged. A password in it is sent and never shown.
        observation_space, action_space: of one environment, the same as for the agent.
        session: name of one of the server's agents. None if it has only one.
        token: token of the server, sent as Bearer token. `parllel.distributed.web.read_token` reads
            one from a file.
        timeout_s: time limit in seconds for each request, including the first, which asks about the
            agent.
        reconnect_s: how long in seconds to retry if the server cannot be reached, loses the
            connection, or is overloaded. With a recurrent agent, only an overloaded server is
            retried, because otherwise the agent may already have acted.

    Raises:
        TypeError: without spaces.
        ValueError: for an invalid URL, or a negative time.
        RemoteError: if the server has no agent or returns no actions. `act` also raises it.
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
                f"RemotePolicy: {self.url}: expected the spaces of the environment, which define "
                "the JSON form of observations and actions, got None"
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
        # Steps of the current episodes, by environment.
        self._steps: dict[int, int] = {}
        self._closed = False
        example = example_of(observation_space)
        self._items = _ITEMS_OF_ROW + sum(np.size(leaf) for _, leaf in buffer_leaves(example))
        try:
            reply = self._request([])
        except BaseException:
            self.close()
            raise
        self.recurrent = isinstance(reply, Mapping) and reply.get("recurrent") is True
        # Clients of one agent use the same environment numbers. A random offset separates their recurrent
        # states.
        self._offset = secrets.randbits(32) << 20 if self.recurrent else 0

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] for observations [N, ...].

        Raises:
            ValueError: if the observations do not fit the space, or `env_indices` are not N distinct ints.
            RemoteError: if there is no action for an environment. Gives the reason.
            ClosedError: after `close`.
        """
        numbers = [int(number) for number in env_indices]
        n = len(next(leaf_paths(observation))[1])
        if len(set(numbers)) != n or len(numbers) != n:
            raise ValueError(f"env_indices: expected {n} distinct ints, got {env_indices!r}")
        if n == 0:
            return buffer_map(
                lambda leaf: np.asarray(leaf)[np.newaxis][:0], example_of(self._space)
            )
        rows = [self._row(observation, i, number) for i, number in enumerate(numbers)]
        actions: list[Any] = []
        for batch in self._batches(rows):
            answers = actions_in(self._request(batch), len(batch))
            actions += [
                self._action(answer, numbers[len(actions) + i]) for i, answer in enumerate(answers)
            ]
        # Counted last, so that after an error the same steps can be requested again.
        for number in numbers:
            self._steps[number] = self._steps.get(number, 0) + 1
        return buffer_map(lambda *leaves: np.stack(leaves), *actions)

    def _row(self, observation: Tree, i: int, number: int) -> bytes:
        own = buffer_map(lambda leaf: np.asarray(leaf)[i], observation)
        try:
            value = to_json(self._observed, own)
        except ValueError as error:
            raise ValueError(f"observation of environment {number}: {error}") from error
        step = self._steps.get(number, 0)
        return json_bytes({"observation": value, "step": step, "env_index": self._offset + number})

    def _batches(self, rows: list[bytes]) -> Iterator[list[bytes]]:
        """Divide rows into batches that fit a server's default limits."""
        most = max(1, _MAX_ITEMS // self._items)
        batch: list[bytes] = []
        nbytes = 0
        for row in rows:
            if batch and (len(batch) == most or nbytes + len(row) > _MAX_BYTES):
                yield batch
                batch, nbytes = [], 0
            batch.append(row)
            nbytes += len(row) + 1
        yield batch

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

    def _request(self, rows: list[bytes]) -> Any:
        """Return the reply to a request, retrying it for up to `reconnect_s`."""
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
                # A recurrent agent may have acted, and advanced its state, before the connection was lost: a
                # second request would make it act twice in one step.
                again, problem = not (self.recurrent and rows), str(error)
            else:
                if reply.status == 200:
                    return self._parsed(reply.body)
                # Turned away before the agent was called, or by a server whose shutdown loses its state
                # anyway.
                again = reply.status in _TRY_LATER
                problem = f"{self.url}: answered with status {reply.status}{_error_in(reply.body)}"
            # No pause that would end after the deadline: the error is then known now.
            if not again or time.monotonic() + pause_s > last:
                raise RemoteError(problem)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _connected(self) -> HttpClient:
        """Return this process's client. A fork gets a new one: it must not share its parent's sockets."""
        if self._closed:
            raise ClosedError(f"RemotePolicy: {self.url}: used after close()")
        if self._pid != os.getpid():
            self._pid, self._client = os.getpid(), HttpClient(self._raw_url)
        return self._client

    def _parsed(self, data: bytes) -> Any:
        try:
            reply = parse_json(data)
        except WireError as error:
            raise RemoteError(f"{self.url}: answered with invalid JSON: {error}") from None
        if isinstance(reply, Mapping) and "error" in reply:
            raise RemoteError(f"{self.url}: answered: {reply['error']!s:.1000}")
        if not isinstance(reply, Mapping) or "actions" not in reply:
            raise RemoteError(
                f'{self.url}: expected a reply with "actions", as from `parllel remote serve`, got '
                f"{reply!s:.200}"
            )
        return reply

    # ------------------------------------------------------------------ episodes

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Start new episodes with the next actions.

        Seeds are ignored, because the server draws the random numbers.
        """
        if env_indices is None:
            self._steps.clear()
        else:
            for number in env_indices:
                self._steps.pop(int(number), None)

    def state(self) -> State:
        """Return the steps of the current episodes."""
        return {"steps": {str(number): step for number, step in self._steps.items()}}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Episodes of a recurrent policy start again."""
        steps = {} if self.recurrent else state["steps"]
        self._steps = {int(number): int(step) for number, step in steps.items()}

    def close(self) -> None:
        """Close the connections. The server keeps its agent. Idempotent."""
        self._closed = True
        # In a fork the client is the parent's, whose connections are not ours to close.
        if self._pid == os.getpid():
            self._client.close()


def remote_policy(
    spec: str, *, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
) -> RemotePolicy:
    """Build the policy of a URL, for `policy_of`."""
    return RemotePolicy(spec, observation_space, action_space)


def _error_in(data: bytes) -> str:
    """Return the error in a reply as the end of a message; "" if it has none."""
    try:
        reply = parse_json(data)
    except WireError:
        return ""
    error = reply.get("error") if isinstance(reply, Mapping) else None
    return "" if error is None else f": {error!s:.1000}"
