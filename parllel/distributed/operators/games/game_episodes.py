"""Player of a game's episodes, with one operator process per player."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.games.game_play import GamePlay
from parllel.distributed.operators.games.multi_agent_operator_handle import MultiAgentOperatorHandle
from parllel.distributed.operators.games.player_spaces import make_game_env
from parllel.distributed.operators.games.seated_players import (
    GameFailedError,
    Notice,
    Record,
    Seat,
    SeatedPlayers,
    ignore_notice,
)
from parllel.distributed.operators.protocol.choosing import Choose
from parllel.distributed.operators.protocol.frames import can_render, frame_of
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.distributed.operators.protocol.operator_config import step_timeout_of
from parllel.distributed.operators.viewers import EpisodeViewers, Viewer
from parllel.envs.multi_agent_game import game_of, keep_games_open, with_render_mode
from parllel.types import Closeable


class GameEpisodes(Closeable):
    """Plays episodes of one game with the players of a handle. Makes the game, and closes it.

    Args:
        config: configuration of the game.
        start_timeout_s: time limit in seconds for all players to get ready for an episode. For the
            first episode this includes the start of their workers.
        step_timeout_s: time limit in seconds for all answers to one question. The default depends
            on the kinds of the players.
        viewers: receive the pictures that they want.
        choose: function that asks players of kind "human". With None, their workers ask at a
            terminal.
        notice: function called when the status of a player changes.

    Attributes:
        players: the names of the seats, in the order of the game.

    Raises:
        ValueError: if the game cannot be made, or `config` lacks an operator for one of its seats.
        ImportError, FileNotFoundError: if the game's library or file is missing.
    """

    def __init__(
        self,
        config: MultiAgentConfig,
        *,
        start_timeout_s: float = 60.0,
        step_timeout_s: float | None = None,
        viewers: Sequence[Viewer] = (),
        choose: Choose | None = None,
        notice: Notice = ignore_notice,
    ) -> None:
        self._config, self._viewers = config, viewers
        self._choose, self._notice = choose, notice
        self._start_timeout_s = start_timeout_s
        self._step_timeout_s = step_timeout_of(config.players.values(), step_timeout_s)
        with keep_games_open():
            self._game = game_of(
                _make_game(config, draws=any(v.may_view(config.operator_id) for v in viewers))
            )
        self.players = self._game.players
        if set(config.players) != set(self.players):
            self.close()
            raise ValueError(
                f"game {config.operator_id!r}: players: {config.env_id} expects operators for "
                f"{list(self.players)}, got operators for {sorted(config.players)}"
            )

    def seating(self, episode: int) -> dict[str, str]:
        """Return which player of the config takes each seat of the game in an episode."""
        names = list(self.players)
        turns = episode % len(names) if self._config.seats == "rotate" else 0
        return {names[(i + turns) % len(names)]: name for i, name in enumerate(names)}

    def play(
        self,
        handle: MultiAgentOperatorHandle,
        episode: int,
        seed: int,
        *,
        agent_seed: int | None = None,
        before_step: Callable[[], None] = lambda: None,
        record_step: Callable[[Record], None] = lambda record: None,
    ) -> list[EpisodeOutcome]:
        """Play an episode and return the outcome of each player, in the order of the config.

        The episode fails for all players if a player dies, hangs or replies with an error, or if
        the game raises an exception.

        Args:
            handle: handle of the players, by their names in the config.
            episode: number of the episode, which determines the seats.
            seed: seed of the game.
            agent_seed: seed from which each player's seed is derived, together with the name of the
                seat. Default: `seed`.
            before_step: function called before each step of the game. If it raises an exception,
                the episode ends and the exception is passed on.
            record_step: function called with the record of each action that a player was asked for.
        """
        config, seating = self._config, self.seating(episode)
        seats = {seat: Seat(seat, config.players[name]) for seat, name in seating.items()}
        # By seat, for this episode only. It shares the workers of `handle`, which keeps owning them.
        seated = MultiAgentOperatorHandle(
            config,
            {seat: handle.player_handles[name] for seat, name in seating.items()},
        )
        drawn = seed if agent_seed is None else agent_seed
        watch = self._watch(episode)
        players = SeatedPlayers(seated, seats, self._choose, self._notice)
        play = GamePlay(self._game, config, players, seats, seed, drawn, record_step, watch)
        failure: GameFailedError | None = None
        try:
            play.begin(self._start_timeout_s)
            play.play(before_step, self._step_timeout_s)
        except GameFailedError as error:
            failure = error
        seat_of = {name: seats[seat] for seat, name in seating.items()}
        # After a failure too: what had been played, and what the answers cost, is part of the outcome.
        return [play.outcome(seat_of[name], failure) for name in config.players]

    def _watch(self, episode: int) -> Callable[[int, bool], None]:
        config, env = self._config, self._game.env
        viewers = EpisodeViewers(self._viewers, config.operator_id, config.env_id, episode)

        def show(step: int, is_last: bool) -> None:
            wants, wants_last = viewers.ask()
            if wants or (is_last and wants_last):
                payload = frame_of(env, "png") if can_render(env) else None
                viewers.show(step, payload, is_last=is_last)

        return show

    def close(self) -> None:
        """Close the game. Idempotent."""
        self._game.close()


def _make_game(config: MultiAgentConfig, *, draws: bool) -> Any:
    """Return the game, with a render mode of pictures, or else text, if `draws` and it has one."""

    def make(**more: str) -> Any:
        return make_game_env(config.env_id, {**config.env_kwargs, **more})

    env = make()
    return with_render_mode(env, make, ("rgb_array", "ansi")) if draws else env
