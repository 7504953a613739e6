"""An environment in which agents of any kind play episodes of a game.

Environment    all steps and logs since the episode began; makes agents, runs episodes
Episode        the position, and what actions, failures and time make of it (games/)
Game           how the position changes (games/)
EpisodeRunner  asks the agents that are active for their actions
Agent          acts, here or elsewhere, or says why it has no action
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

_JUST_S = 0.001  # by which the clock of an agent may be ahead


class Environment(Closeable):
    """Play episodes of a game.

    Args:
        name: of the game, see `environments`.
        configuration: values that differ from the defaults of the game's specification.
        info: JSON values that the replay is to hold, such as the names of the teams.
        steps: of an episode to go on with, as in its replay. A game whose observations are its whole state
            goes on from the last of them; others play all actions again, by the seed in `info`.
        logs: of these steps.
        debug: whether what agents print is repeated on stderr, with the tracebacks of their errors.
        settings: what the processes of agents may use that are made here.

    Attributes:
        name, configuration, info, debug: the arguments; the configuration has all defaults.
        specification: of the game, JSON values.
        agents: built-in agents of the game, by name.
        steps: the states of all agents after each step, the first included, as in a replay.
        logs: for each step and agent its `duration`, `stdout` and `stderr`; {} for one that did not act.
        id: of this environment.

    Raises:
        ValueError: for a game that does not exist, a configuration that is not as the specification says,
            and steps that are not of this game, or come out otherwise when they are played again.
        ImportError: if the library of the game is not installed; names the extra.

    Close it, for what its game and agents hold. It is for one thread.
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
        self._episodes = 0  # begun so far
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
        """The specification of the game, with what all games have; not to be changed."""
        return self._specification.values

    @property
    def state(self) -> Row:
        """The states of all agents after the last step."""
        return self.steps[-1]

    @property
    def done(self) -> bool:
        """Whether no agent is to act any more."""
        return all(state["status"] != "ACTIVE" for state in self.state)

    def observation(self, number: int) -> dict[str, Any]:
        """Return what one agent observes: its own fields and those that all see, in memory of its own.

        Fields that the specification hides are left out, as they are wherever an agent acts.
        """
        names, first = self._specification.shared, self.state[0]["observation"]
        shared = {name: first[name] for name in names if name in first}
        observation: dict[str, Any] = plain({**self.state[number]["observation"], **shared})
        remove_hidden(observation, self._specification.hidden)
        return observation

    # ------------------------------------------------------------------ an episode

    def reset(self, n_agents: int | None = None) -> Row:
        """Begin an episode, and return its first state.

        n_agents: default the first number that the specification allows.

        Raises:
            ValueError: if so many agents cannot play.
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
        """Make one step, and return the next state.

        Args:
            actions: of each agent; None plays the default of the schema. Those of agents that are not ACTIVE
                are not looked at. An AgentFailure stands for an agent without an action.
            logs: of each agent. A `duration` beyond actTimeout is taken from its remainingOverageTime.

        Raises:
            WrongStateError: if the episode is over, or the game has raised an error in it.
            ValueError: for another number of actions.
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
        """Return an Agent for each specification, and None for None, which plays the default.

        An Agent is used as it is. Those that are made here end with this environment.

        Raises:
            ValueError: if so many cannot play, or a specification means nothing.
            FileNotFoundError: for a file that is not there.
            Exception: what the code of an agent raises when it is executed.
        """
        if isinstance(agents, (str, bytes)):
            raise TypeError(f"agents: expected a list of agents, got {agents!r}")
        self._specification.check_number(len(agents))
        found: list[Agent | None] = []
        with ExitStack() as stack:
            # If one cannot be made, those before it end.
            for raw in agents:
                given = raw is None or isinstance(raw, Agent)
                found.append(
                    raw if given else stack.enter_context(Agent(raw, self, self._settings))
                )
            stack.pop_all()
        self._made += _made_of(found, agents)
        return found

    def runner(self, agents: Sequence[Agent | None]) -> EpisodeRunner:
        """Return what asks the agents that `initialize_agents` returned for their actions."""
        return EpisodeRunner(self, agents)

    def run(
        self, agents: Sequence[Any], *, on_step: Callable[[Environment], None] | None = None
    ) -> list[Row]:
        """Play an episode to its end, and return its steps.

        It goes on from where the environment is; after the end of an episode another one begins. If
        runTimeout ends it early, `info["stopped"]` says so, and agents stay ACTIVE: it has no result. An
        action for which the episode lacked the time, and not its agent, is not played.

        agents: a specification, an Agent or None for each seat.
        on_step: called after each step.

        Raises: as `initialize_agents` does; what the game raises.
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
        """Return what steps this environment by the actions of one agent.

        agents: a specification or an Agent for each seat, and None for the agent that is trained.

        Raises:
            ValueError: unless exactly one of them is None, or if so many cannot play.
        """
        self._specification.check_number(len(agents))
        trainer = EnvTrainer(self, agents)
        self._closing.callback(trainer.close)
        return trainer

    def release(self, found: Sequence[Agent | None], agents: Sequence[Any]) -> None:
        """End those agents that `initialize_agents` has made of these specifications."""
        self._end([agent for agent in _made_of(found, agents) if agent in self._made])

    def _end(self, agents: Sequence[Agent]) -> None:
        """Close agents that were made here, each whatever another raises."""
        with ExitStack() as stack:
            for agent in agents:
                self._made.remove(agent)
                stack.callback(agent.close)

    # ------------------------------------------------------------------ replays

    def to_json(self) -> dict[str, Any]:
        """Return the replay: JSON values. Its steps are the environment's own, which do not change."""
        return replay_of(
            self.specification,
            episode_id=self.id,
            configuration=self.configuration,
            info=self.info,
            steps=self.steps,
        )

    # As kaggle-environments calls it.
    toJSON = to_json  # noqa: N815

    def render(self, mode: str = "json") -> Any:
        """Return the episode in the form of a mode.

        mode: "json", the replay as text; "ansi", the last position as text for a terminal; "html", one page
            that plays the episode; "rgb_array", a picture of the last position, uint8 [H, W, 3].

        Raises:
            ValueError: for another mode, one that the game does not have, or if an episode that has to be
                played again for its pictures comes out otherwise.
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
        """Yield the game with its position after each step; each is valid until the next.

        pictures: whether the game will be asked for pictures.

        Raises:
            ValueError: if the episode has to be played again for it, and comes out otherwise.
        """
        game = self._episode.game
        if game.observed:
            for row in self.steps:
                # Without a check: those from elsewhere were checked when they came.
                yield game, Position.of_row(row, self._specification.shared)
            return
        # In a game of its own, as this one may be in the middle of an episode.
        with new_game(self.name) as game:
            game.configuration, game.pictures = self.configuration, pictures
            for position in GameEpisode(game, self._specification).again(self.steps, self._seed()):
                yield game, position

    def load(self, steps: Sequence[Row], logs: Sequence[Any] | None = None) -> None:
        """Go on after these steps, which are those of an episode; see the class.

        Raises:
            ValueError: if they are not of this game, or come out otherwise when they are played again.
        """
        rows = self._episode.load(steps, self._seed)
        self.steps, self.logs = rows, checked_logs(logs, len(rows))
        self._episodes = 1

    def _seed(self) -> int:
        """Return the seed of an episode that is to be played again."""
        seed = self.info.get("seed")
        if type(seed) is not int or seed < 0:
            raise ValueError(
                f"{self.name}: its observations are not all of its state, so that an episode is rebuilt by "
                f'its seed and actions: expected the replay\'s info with its "seed", got {seed!r}'
            )
        return seed

    def close(self) -> None:
        """End the agents that were made here, and the game; may be called twice."""
        try:
            self._end(list(self._made))
        finally:
            self._closing.close()


class _BuiltInAgents(Mapping[str, Callable[..., Any]]):
    """Return an agent by its name; of a class an instance each time, which no other agent shares."""

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
    """Return what the agents do, and their logs; None if the episode ended before they could."""
    left_s = end - perf_counter()
    if left_s <= 0:
        return None
    actions, logs = runner.act(left_s)
    if perf_counter() > end - _JUST_S and any(_is_late(actions[n]) for n in runner.cut_short):
        # As an action this would be a defeat, for an agent with time left that the rules give it.
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
    """Return an Environment, which see."""
    return Environment(
        name, configuration, info=info, steps=steps, logs=logs, debug=debug, settings=settings
    )


def _made_of(found: Sequence[Agent | None], given: Sequence[Any]) -> list[Agent]:
    """Return those agents that were made of specifications."""
    pairs = zip(found, given, strict=True)
    return [agent for agent, raw in pairs if agent is not None and agent is not raw]


def _copied(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = plain(dict(values))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return copied
