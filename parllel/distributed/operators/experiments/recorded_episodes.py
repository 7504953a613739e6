"""Recorded episodes of an experiment, for looking at them step by step.

results page    list_episodes      the episodes that were played, and their returns
replay page     episode_overview   one episode: its records, the curve of its return, others of the same seed
                episode_steps      a page of its steps, as they were recorded
                episode_video      its video, if it was filmed

Names and numbers come from clients. They are looked up in the experiment's record and telemetry, and never
joined to a path. Only the requested steps are kept in memory, so a long episode costs little.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from parllel.distributed.operators.experiments.experiment_folder import open_experiment, sources_of
from parllel.distributed.operators.experiments.experiment_list import find_experiment
from parllel.distributed.operators.experiments.film import video_path
from parllel.distributed.operators.experiments.results import RecordedEpisode, Source, label_of
from parllel.distributed.operators.experiments.telemetry import (
    EPISODES,
    STEPS,
    read_telemetry,
    telemetry_path,
)
from parllel.runs.run_folder import RunFolder, run_state

MAX_EPISODES = 1000  # records of episodes in a page
MAX_STEPS, MAX_BYTES = 200, 1 << 20  # steps in a page, and the bytes of their records
MAX_VIDEO_BYTES = 32 << 20
_MAX_POINTS = 500  # of a curve
_LISTED = ("seed", "agent_seed", "status", "total_reward", "episode_length", "success", "failure")


def list_episodes(base: str | os.PathLike[str], run: str, start: int = 0) -> dict[str, Any]:
    """Return a page of an experiment's recorded episodes, in the order of their numbers.

    base, run: folder, and path of the experiment below it.
    start: number of records to skip, at least 0.

    Returns a dict with `episodes` and `next`, the start of the next page, or None. Each of the episodes
    has `group`, `operator` (id of the operator or game), `episode`, `operator_id`, and the fields
    of its record except tokens. A game has one for each of its players. An episode with steps but no record,
    because it was abandoned or is being played, has the status "unfinished".

    Raises:
        KeyError: if there is no such experiment.
        ValueError: if its record or telemetry is damaged.
    """
    played = _Played(base, run)
    found = [
        {
            "group": source.group,
            "operator": name,
            "episode": record["episode"],
            "operator_id": record.get("operator_id", name),
            **{one: record.get(one) for one in _LISTED},
        }
        for name, source in played.sources.items()
        for record in played.records(source) + played.unfinished(name, source)
    ]
    # Stable, so that operators keep the order of the experiment.
    found.sort(key=lambda episode: episode["episode"])
    end = start + MAX_EPISODES
    return {"episodes": found[start:end], "next": end if end < len(found) else None}


def episode_overview(
    base: str | os.PathLike[str], run: str, operator: str, episode: int
) -> dict[str, Any]:
    """Return what is known of one episode, without its steps.

    operator: id of an operator or a game.
    episode: number of the episode. If it was played more than once, the last time counts.

    Returns a dict with these keys:

    run, name, label: path and name of the experiment, and display name of the environment or game.
    operator, episode: as requested.
    state: state of the run, as in `parllel runs`.
    seed: seed of the environment; None if it was not recorded.
    records: the records of the episode, one per player; empty if it was abandoned or is being played.
    n_steps: number of recorded steps.
    curves: for each player, `name` and `points`, which are pairs of a step's index, from 0, and the
        cumulative reward after it. At most 500 evenly spaced steps, and the last one.
    beside: `operator` and `episode` of the other operators' episodes with the same seeds.
    video: whether `episode_video` has a video.
    previous, next: numbers of the operator's recorded episodes before and after this one, or None.

    Raises:
        KeyError: if there is no such experiment, operator or episode.
        ValueError: if the record or telemetry is damaged.
    """
    played = _Played(base, run)
    source = played.source(operator)
    noted, unfinished = played.records(source), played.unfinished(operator, source)
    records = [record for record in noted if record["episode"] == episode]
    known = records or [record for record in unfinished if record["episode"] == episode]
    numbers = {record["episode"] for record in noted + unfinished}
    stretch = played.steps(source).get(episode)
    if stretch is None and not records:
        raise KeyError(f"{run}: operator {operator!r} has no recorded episode {episode}")
    path = played.path(source, STEPS)
    return {
        "run": run,
        "name": played.name,
        "label": label_of(source.group),
        "operator": operator,
        "episode": episode,
        "state": played.state,
        "seed": next((record.get("seed") for record in known), None),
        "records": records,
        "n_steps": 0 if stretch is None else len(stretch.offsets),
        "curves": [] if stretch is None else _curves(path, stretch, operator),
        "beside": list(played.beside(operator, episode, known)),
        "video": played.video(operator, episode) is not None,
        "previous": max((number for number in numbers if number < episode), default=None),
        "next": min((number for number in numbers if number > episode), default=None),
    }


def episode_steps(
    base: str | os.PathLike[str], run: str, operator: str, episode: int, start: int = 0
) -> dict[str, Any]:
    """Return a page of the steps of an episode.

    start: index of the first step, from 0.

    Returns a dict with `start`, `n_steps` and `steps`. Each step is a list of its records: one, or one
    for each player who acted in it. A page has at most 200 steps and 1 MiB, but at least one step.

    Raises:
        KeyError: if there is no such experiment, operator, episode or step.
        ValueError: if the record or telemetry is damaged.
    """
    played = _Played(base, run)
    source = played.source(operator)
    stretch = played.steps(source).get(episode)
    if stretch is None:
        raise KeyError(f"{run}: operator {operator!r} has no recorded steps of episode {episode}")
    n_steps = len(stretch.offsets)
    if not 0 <= start < n_steps:
        raise KeyError(f"{run}: episode {episode} of {operator!r} has {n_steps} steps, got {start}")
    path = played.path(source, STEPS)
    steps = list(_steps(path, stretch.edges(start), msgspec.json.decode))
    return {"start": start, "n_steps": n_steps, "steps": steps}


def episode_video(base: str | os.PathLike[str], run: str, operator: str, episode: int) -> bytes:
    """Return the video of an episode as MP4, with all operators of its environment side by side.

    It has 30 pictures per second: the first one after the reset, then one after each step.

    Raises:
        KeyError: if there is no such experiment or operator, or the episode was not filmed.
        ValueError: if the record is damaged, or the video has more than 32 MiB.
    """
    played = _Played(base, run)
    played.source(operator)
    path = played.video(operator, episode)
    if path is None:
        raise KeyError(f"{run}: operator {operator!r} has no video of episode {episode}")
    if path.stat().st_size > MAX_VIDEO_BYTES:
        raise ValueError(f"{path}: larger than {MAX_VIDEO_BYTES >> 20} MiB; open the file instead")
    return path.read_bytes()


class _Played:
    """The telemetry of an experiment below a folder.

    Attributes:
        name: name of the experiment.
        state: state of the run.
        sources: where episodes are recorded, by the id of the operator or game.
    """

    def __init__(self, base: str | os.PathLike[str], run: str) -> None:
        self._run, folder = run, find_experiment(base, run)
        self._folder, self._videos = folder / "telemetry", folder / "videos"
        record = open_experiment(folder)
        values, self.state = record.config, run_state(RunFolder.open(folder), record)
        self.name = str(values.get("name"))
        sources = sources_of(folder, values)
        names = [str(operator["operator_id"]) for operator in values["operators"]]
        self.sources = dict(zip(names, sources, strict=True))
        self._env_ids = {
            name: str(operator["env_id"])
            for name, operator in zip(names, values["operators"], strict=True)
        }

    def source(self, operator: str) -> Source:
        if operator not in self.sources:
            raise KeyError(
                f"{self._run}: expected an operator of the experiment, one of "
                f"{', '.join(self.sources)}; got {operator!r}"
            )
        return self.sources[operator]

    def path(self, source: Source, kind: str) -> Path:
        path = telemetry_path(self._folder, source.run_id, kind)
        # Names in a config that somebody else wrote, and links, could lead elsewhere.
        if path.resolve().parent != self._folder.resolve():
            raise ValueError(f"{path}: expected telemetry within the folder of the experiment")
        return path

    def records(self, source: Source) -> list[dict[str, Any]]:
        """Return the records of episodes. Of those with the same number and operator, the last."""
        path = self.path(source, EPISODES)
        if not path.exists():
            return []
        newest: dict[Any, dict[str, Any]] = {}
        for record in read_telemetry(path):
            try:
                msgspec.convert(record, RecordedEpisode)
            except msgspec.ValidationError as error:
                raise ValueError(f"{path}: not the record of an episode: {error}") from None
            newest[record["episode"], record["operator_id"]] = record
        return list(newest.values())

    def unfinished(self, name: str, source: Source) -> list[dict[str, Any]]:
        """Return what the steps tell of the episodes that have no records."""
        noted = {record["episode"] for record in self.records(source)}
        return [
            {
                "episode": number,
                "operator_id": player or name,
                "seed": seed,
                "agent_seed": agent_seed,
                "status": "unfinished",
                "episode_length": len(stretch.offsets),
            }
            for number, stretch in self.steps(source).items()
            if number not in noted
            for player, (seed, agent_seed) in stretch.seeds.items()
        ]

    def video(self, operator: str, episode: int) -> Path | None:
        path = video_path(self._videos, self._env_ids[operator], episode)
        return path if path.is_file() and path.resolve().parent == self._videos.resolve() else None

    def steps(self, source: Source) -> dict[int, _Stretch]:
        path = self.path(source, STEPS)
        try:
            found = path.stat()
        except FileNotFoundError:  # nothing was played
            return {}
        return _stretches(path, (found.st_ino, found.st_size, found.st_mtime_ns))

    def beside(
        self, operator: str, episode: int, records: Iterable[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the other operators' episodes of the same environment and seeds."""
        keys = {_seeds(record) for record in records}
        for name, source in self.sources.items():
            if name == operator or source.group != self.sources[operator].group:
                continue
            played = self.records(source) + self.unfinished(name, source)
            same = [one["episode"] for one in played if _seeds(one) in keys]
            if same:
                # Of several with the same seeds, those of the same number were played together.
                yield {"operator": name, "episode": episode if episode in same else same[0]}


def _seeds(record: dict[str, Any]) -> tuple[Any, Any]:
    return record.get("seed"), record.get("agent_seed")


class _Line(msgspec.Struct):
    """The fields by which steps are found. Old records may lack any of them."""

    episode: int | None = None
    step: int | None = None
    operator_id: str | None = None
    player_id: str | None = None
    seed: int | None = None
    agent_seed: int | None = None


@dataclass
class _Stretch:
    """Where the steps of one episode are in a file.

    Attributes:
        offsets: offset in bytes of the first record of each step.
        end: offset after the last record.
        seeds: seeds of the environment and of the agent, by the operator who acts.
    """

    offsets: array[int] = field(default_factory=lambda: array("q"))
    end: int = 0
    seeds: dict[str | None, tuple[int | None, int | None]] = field(default_factory=dict)

    def edges(self, start: int) -> list[int]:
        """Return the offsets of a page's steps, and the end of the last one."""
        edges = [*self.offsets[start : start + MAX_STEPS + 1], self.end][: MAX_STEPS + 1]
        n = sum(edge - edges[0] <= MAX_BYTES for edge in edges[1:])
        return edges[: max(n, 1) + 1]


@lru_cache(maxsize=8)
def _stretches(path: Path, version: tuple[int, int, int]) -> dict[int, _Stretch]:
    """Return where each episode is recorded; the last time, if it was played more than once.

    A file has one writer, which plays one episode after the other: its steps are consecutive lines.

    version: changes with the file, for the cache.
    """
    found: dict[int, _Stretch] = {}
    decode = msgspec.json.Decoder(_Line).decode
    stretch, episode, step, actors, at = _Stretch(), None, None, set[Any](), 0
    for line, length in read_telemetry(path, lambda text: (decode(text), len(text))):
        begin, at = at, at + length
        if line.episode is None:
            continue
        actor = line.operator_id, line.player_id
        is_new = line.step is None or line.step != step
        if line.episode != episode or _is_again(line, step, actor in actors):
            episode, is_new = line.episode, True
            stretch = found[line.episode] = _Stretch()
        if is_new:
            step, actors = line.step, set()
            stretch.offsets.append(begin)
        actors.add(actor)
        stretch.seeds.setdefault(line.operator_id, (line.seed, line.agent_seed))
        stretch.end = at
    return found


def _is_again(line: _Line, step: int | None, has_acted: bool) -> bool:
    """Return whether the episode has begun again under its number, after a failure."""
    if line.step is None or step is None:
        return False
    return line.step < step or (line.step == step and has_acted)


def _steps(path: Path, edges: Sequence[int], decode: Callable[[bytes], Any]) -> Iterator[list[Any]]:
    """Yield the records of each step between two offsets."""
    with open(path, "rb") as file:
        file.seek(edges[0])
        for begin, end in pairwise(edges):
            try:
                yield [decode(line) for line in file.read(end - begin).splitlines()]
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}: at byte {begin}: not a record: {error}") from None


class _Rewards(msgspec.Struct):
    player_id: str | None = None
    reward: float | None = None
    rewards: dict[str, float | None] | None = None


def _curves(path: Path, stretch: _Stretch, operator: str) -> list[dict[str, Any]]:
    """Return the cumulative reward of each player over the steps of an episode."""
    n = len(stretch.offsets)
    stride = -(-n // _MAX_POINTS)
    decode = msgspec.json.Decoder(_Rewards).decode
    totals: dict[str, float] = {}
    points: dict[str, list[tuple[int, float]]] = {}
    for i, step in enumerate(_steps(path, [*stretch.offsets, stretch.end], decode)):
        for line in step:
            # In turn-based games a move may reward the other players too.
            rewards = line.rewards or {line.player_id or operator: line.reward}
            for name, reward in rewards.items():
                totals[name] = totals.get(name, 0.0) + (reward or 0.0)
        if i % stride == 0 or i == n - 1:
            for name, total in totals.items():
                points.setdefault(name, []).append((i, total))
    return [{"name": name, "points": gains} for name, gains in points.items()]
