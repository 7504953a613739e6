"""Environment in which agents of any kind play episodes of a game.

Environment    steps and logs of the episode; builds agents, runs episodes
GameEpisode    the position, and its update by actions, failures and time (games/)
Game           the rules: how the position changes (games/)
EpisodeRunner  collects the actions of the active agents
Agent          returns an action, or the reason why it has none
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.episode_runner import EpisodeRunner
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.games.episode import GameEpisode, Row
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.marks import remove_hidden
from parllel.distributed.remote.games.position import Position
from parllel.distributed.remote.games.registry import new_game
from parllel.distributed.remote.games.specification import specification_of
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.render_html import episode_page
from parllel.distributed.remote.replay import checked_logs, last_picture, last_text, replay_of
from parllel.distributed.remote.trainer import EnvTrainer
from parllel.distributed.wire.json_text import json_bytes
from parllel.errors import WrongStateError
from parllel.seeding import Seeds
from parllel.types import Closeable

_JUST_S = 0.001  # tolerance between an agent's clock and the episode's


class Environment(Closeable):
    """Environment that plays episodes of a game. Not thread-safe; close it to release its game and agents.

    Args:
        name: name of the game, see `environments`.
        configuration: values that override the defaults of the game's specification.
        info: JSON values to store in the replay, such as the names of the teams.
        steps: steps of an episode to continue, in the format of a replay. A game whose observations
            are its whole state continues from the last one; other games replay all actions with the
            seed in `info`.
        logs: logs of those steps.
        debug: whether agents' output and tracebacks are repeated on stderr.
        settings: permissions and limits of the agents' processes.

    Attributes:
        name, configuration, info, debug: the arguments. The configuration is completed with all
            defaults.
        specification: specification of the game as JSON values.
        agents: built-in agents of the game, keyed by name.
        steps: states of all agents at the start and after each step, as in a replay.
        logs: `duration`, `stdout` and `stderr` by step and agent; {} for an agent that did not act.
        id: unique id of this environment.

    Raises:
        ValueError: for an unknown game, a configuration that violates the specification, or steps
            that belong to another game or differ when they are replayed.
        ImportError: if the library of the game is not installed. Names the extra.
    """

    def __init__(
        self,
        name: str,
        configuration: Mapping[str, Any] | None = None,
        *,
        info: Mapping[str, Any] | None = None,
        steps: Sequence[Row] | None = None,
        logs: Sequence[Any] | None = None,
        debug: bool = False,
        settings: AgentSettings | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self.debug = debug
        self.id = str(uuid.uuid4())
        self.info: dict[str, Any] = _copied("info", info or {})
        self.steps: list[Row] = []
        self.logs: list[list[dict[str, Any]]] = []
        self._episodes = 0  # started so far
        self._made: list[Agent] = []
        with ExitStack() as stack:
            game = stack.enter_context(new_game(name))
            self._specification = specification_of(game)
            self.configuration = self._specification.configure(configuration)
            game.configuration = self.configuration
            self.agents = _BuiltInAgents(game.agents)
            self._episode = GameEpisode(game, self._specification)
            if steps:
                self.load(steps, logs)
            else:
                self.reset()
            self._closing = stack.pop_all()

    # ------------------------------------------------------------------ what there is

    @property
    def specification(self) -> dict[str, Any]:
        """The game's specification, including the fields that all games share. Read-only."""
        return self._specification.values

    @property
    def state(self) -> Row:
        """States of all agents after the last step."""
        return self.steps[-1]

    @property
    def done(self) -> bool:
        """Whether the episode is over: no agent is ACTIVE."""
        return all(state["status"] != "ACTIVE" for state in self.state)

    def observation(self, number: int) -> dict[str, Any]:
        """Return a copy of one agent's observation: its own fields and the shared ones.

        Omits fields that the specification hides from agents.
        """
        names, first = self._specification.shared, self.state[0]["observation"]
        shared = {name: first[name] for name in names if name in first}
        observation: dict[str, Any] = plain({**self.state[number]["observation"], **shared})
        remove_hidden(observation, self._specification.hidden)
        return observation

    # ------------------------------------------------------------------ an episode

    def reset(self, n_agents: int | None = None) -> Row:
        """Start an episode and return its first state.

        n_agents: defaults to the first number that the specification allows.

        Raises:
            ValueError: for a number of agents that the game does not allow.
        """
        if n_agents is None:
            n_agents = int(self.specification["agents"][0])
        self._specification.check_number(n_agents)
        seed = self._next_seed()
        self.info.pop("stopped", None)
        if not self._episode.game.observed:
            self.info["seed"] = seed
        self.steps, self.logs = [self._episode.start(n_agents, seed)], [[]]
        return self.state

    def step(self, actions: Sequence[Any], logs: Sequence[Mapping[str, Any]] = ()) -> Row:
        """Advance the episode by one step and return the next state.

        Args:
            actions: one per agent. None plays the schema's default; an AgentFailure reports that the agent
                has no action. Actions of agents that are not ACTIVE are ignored.
            logs: one per agent. A `duration` beyond actTimeout is deducted from remainingOverageTime.

        Raises:
            WrongStateError: if the episode is over, or the game has raised an error in it.
            ValueError: for a wrong number of actions.
        """
        if self.done:
            raise WrongStateError(f"{self.name}: the episode is over; call reset")
        if len(actions) != len(self.state):
            raise ValueError(f"{self.name}: expected {len(self.state)} actions, got {len(actions)}")
        row = self._episode.advance(actions, [float(log.get("duration", 0)) for log in logs])
        self.steps.append(row)
        self.logs.append([dict(log) for log in logs])
        return row

    def _next_seed(self) -> int:
        """Return the seed of the next episode."""
        seed, number = self.configuration["seed"], self._episodes
        self._episodes += 1
        if seed is None:
            return secrets.randbits(32)
        return int(seed) if number == 0 else Seeds(seed).integer(f"episode {number}")

    # ------------------------------------------------------------------ agents

    def initialize_agents(self, agents: Sequence[Any]) -> list[Agent | None]:
        """Return an Agent for each specification, and None for None, which plays the default action.

        An Agent is used unchanged. Agents built here are closed with this environment.

        Raises:
            ValueError: for a number of agents that the game does not allow, or an invalid specification.
            FileNotFoundError: for a file that does not exist.
            Exception: raised by an agent's code when it is executed.
        """
        if isinstance(agents, (str, bytes)):
            raise TypeError(f"agents: expected a list of agents, got {agents!r}")
        self._specification.check_number(len(agents))
        found: list[Agent | None] = []
        with ExitStack() as stack:
            # If one cannot be built, those before it are closed.
            for raw in agents:
                given = raw is None or isinstance(raw, Agent)
                found.append(
                    raw if given else stack.enter_context(Agent(raw, self, self._settings))
                )
            stack.pop_all()
        self._made += _made_of(found, agents)
        return found

    def runner(self, agents: Sequence[Agent | None]) -> EpisodeRunner:
        """Return a runner that collects actions from the agents of `initialize_agents`."""
        return EpisodeRunner(self, agents)

    def run(
        self, agents: Sequence[Any], *, on_step: Callable[[Environment], None] | None = None
    ) -> list[Row]:
        """Play an episode to its end and return its steps.

        An unfinished episode is continued; after the end, a new one is started. If runTimeout stops
        the episode early, `info["stopped"]` records this and agents stay ACTIVE, so the episode has
        no result. If an action is late because the episode ran out of time, and not its agent, it
        is not played.

        agents: a specification, an Agent or None for each seat.
        on_step: function called after each step.

        Raises the errors of `initialize_agents`, and any error of the game.
        """
        found = self.initialize_agents(agents)
        try:
            if self._episode.position is None or self.done or len(found) != len(self.state):
                self.reset(len(found))
            self.info.pop("stopped", None)
            began, limit_s = perf_counter(), self.configuration["runTimeout"]
            with self.runner(found) as runner:
                while not self.done:
                    acted = _act_until(runner, began + limit_s)
                    if acted is None:
                        self.info["stopped"] = f"by runTimeout, after {limit_s:g} s"
                        break
                    self.step(*acted)
                    if on_step is not None:
                        on_step(self)
        finally:
            self._end(_made_of(found, agents))
        return self.steps

    def train(self, agents: Sequence[Any]) -> EnvTrainer:
        """Return a trainer, which steps this environment with the actions of one agent.

        agents: a specification or an Agent for each seat, and None for the agent being trained.

        Raises:
            ValueError: unless exactly one is None, or for a number of agents that the game does not allow.
        """
        self._specification.check_number(len(agents))
        trainer = EnvTrainer(self, agents)
        self._closing.callback(trainer.close)
        return trainer

    def release(self, found: Sequence[Agent | None], agents: Sequence[Any]) -> None:
        """Close the agents that `initialize_agents` built from these specifications."""
        self._end([agent for agent in _made_of(found, agents) if agent in self._made])

    def _end(self, agents: Sequence[Agent]) -> None:
        """Close agents that were built here, even if closing one of them raises."""
        with ExitStack() as stack:
            for agent in agents:
                self._made.remove(agent)
                stack.callback(agent.close)

    # ------------------------------------------------------------------ replays

    def to_json(self) -> dict[str, Any]:
        """Return the replay as JSON values. It shares the environment's steps, which never change."""
        return replay_of(
            self.specification,
            episode_id=self.id,
            configuration=self.configuration,
            info=self.info,
            steps=self.steps,
        )

    # The name in kaggle-environments.
    toJSON = to_json  # noqa: N815

    def render(self, mode: str = "json") -> Any:
        """Render the episode.

        mode: "json" returns the replay as text. "ansi" returns the last position as text for a
            terminal. "html" returns a page that plays the episode. "rgb_array" returns a picture of
            the last position, uint8 [H, W, 3].

        Raises:
            ValueError: for an unknown mode, one that the game lacks, or an episode that differs when it is
                replayed for its pictures.
        """
        if mode == "json":
            return json_bytes(self.to_json()).decode()
        if mode == "ansi":
            stopped = self.info.get("stopped")
            return last_text(self.positions()) + (f"stopped {stopped}\n" if stopped else "")
        if mode == "html":
            return episode_page(self.to_json(), self.logs, self.positions(pictures=True))
        if mode == "rgb_array":
            return last_picture(self.name, self.positions(pictures=True))
        raise ValueError(f"render: expected json, ansi, html or rgb_array, got {mode!r}")

    def positions(self, *, pictures: bool = False) -> Iterator[tuple[Game, Position]]:
        """Yield the game and its position after each step. A position is valid until the next one.

        pictures: whether the caller will request pictures.

        Raises:
            ValueError: if the episode has to be replayed and differs.
        """
        game = self._episode.game
        if game.observed:
            for row in self.steps:
                # Unchecked, since loaded steps were checked by `load`.
                yield game, Position.of_row(row, self._specification.shared)
            return
        # In a separate game, as this one may be in the middle of an episode.
        with new_game(self.name) as game:
            game.configuration, game.pictures = self.configuration, pictures
            for position in GameEpisode(game, self._specification).again(self.steps, self._seed()):
                yield game, position

    def load(self, steps: Sequence[Row], logs: Sequence[Any] | None = None) -> None:
        """Continue after the steps of an episode; see the class.

        Raises:
            ValueError: if the steps belong to another game, or differ when they are replayed.
        """
        rows = self._episode.load(steps, self._seed)
        self.steps, self.logs = rows, checked_logs(logs, len(rows))
        self._episodes = 1

    def _seed(self) -> int:
        """Return the seed of an episode to replay."""
        seed = self.info.get("seed")
        if type(seed) is not int or seed < 0:
            raise ValueError(
                f'{self.name}: info: expected the "seed" of the replayed episode, got {seed!r}; '
                "the observations of this game do not contain its whole state, so the episode is "
                "rebuilt from seed and actions"
            )
        return seed

    def close(self) -> None:
        """Close the game and the agents built here. Idempotent."""
        try:
            self._end(list(self._made))
        finally:
            self._closing.close()


class _BuiltInAgents(Mapping[str, Callable[..., Any]]):
    """Built-in agents by name. A class gives a new instance each time, which no other agent shares."""

    def __init__(self, agents: Mapping[str, Callable[..., Any]]) -> None:
        self._agents = agents

    def __getitem__(self, name: str) -> Callable[..., Any]:
        agent = self._agents[name]
        return agent() if isinstance(agent, type) else agent

    def __contains__(self, name: object) -> bool:
        return name in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)


def _act_until(runner: EpisodeRunner, end: float) -> tuple[list[Any], list[dict[str, Any]]] | None:
    """Return the agents' actions and logs, or None if the episode's time ran out first."""
    left_s = end - perf_counter()
    if left_s <= 0:
        return None
    actions, logs = runner.act(left_s)
    if perf_counter() > end - _JUST_S and any(_is_late(actions[n]) for n in runner.cut_short):
        # Played, the time-out would be a defeat of an agent that had time left by the rules.
        return None
    return actions, logs


def _is_late(action: Any) -> bool:
    return isinstance(action, AgentFailure) and action.status == "TIMEOUT"


def make(
    name: str,
    configuration: Mapping[str, Any] | None = None,
    *,
    info: Mapping[str, Any] | None = None,
    steps: Sequence[Row] | None = None,
    logs: Sequence[Any] | None = None,
    debug: bool = False,
    settings: AgentSettings | None = None,
) -> Environment:
    """Create an Environment; takes the same arguments."""
    return Environment(
        name, configuration, info=info, steps=steps, logs=logs, debug=debug, settings=settings
    )


def _made_of(found: Sequence[Agent | None], given: Sequence[Any]) -> list[Agent]:
    """Return the agents that were built from specifications rather than given."""
    pairs = zip(found, given, strict=True)
    return [agent for agent, raw in pairs if agent is not None and agent is not raw]


def _copied(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = plain(dict(values))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return copied
