"""What an experiment found, computed from its telemetry."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from parllel.operators.intervals import Mean, mean_with_interval, proportion_with_interval
from parllel.operators.price import Price
from parllel.operators.telemetry import EPISODES, STEPS, read_telemetry, telemetry_path

COMPARISONS = ("first", "pairs")
MIN_UNDERSTOOD = 0.5  # of a language model's decisions
NumberT = TypeVar("NumberT", int, float)


class Episode(msgspec.Struct):
    """What results need of the record of an episode; a foreign field is ignored."""

    operator_id: str
    episode: int
    status: str
    total_reward: float | None
    episode_length: int
    seed: int | None = None
    success: bool | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    decisions: int | None = None
    understood: int | None = None
    failure: str | None = None

    @property
    def reward(self) -> float:
        """The total reward; 0 of what has none, which has failed."""
        return self.total_reward or 0.0


# By what makes a pair of them: their number, or a seed and how often that was played before.
Episodes = dict[tuple[int, int], Episode]


class _Step(msgspec.Struct):
    operator_id: str
    latency_s: float | None = None


@dataclass(frozen=True)
class Source:
    """Where the episodes of an operator, or of a game with all of its players, are.

    Attributes:
        group: what is compared with each other has the same: an environment, or a game.
        operators: their ids.
        run_id: of the telemetry.
        episodes: how many were to be played; None on a board, where people begin episodes as they like.
            Then those with the same seed are compared, and else those with the same number.
        prices: of tokens, by operator, where they are known.
    """

    group: str
    operators: tuple[str, ...]
    run_id: str
    episodes: int | None
    prices: Mapping[str, Price] = field(default_factory=dict)


@dataclass(frozen=True)
class Latency:
    """Seconds from a command to its reply, over all steps."""

    median: float
    p95: float


@dataclass(frozen=True)
class OperatorResult:
    """How one operator did; means are over the episodes that ended.

    Attributes:
        total_reward, length: by episode.
        success: how often it had any; None if nothing says what success is.
        tokens, cost: of a language model, by episode; None if it counts none, or has no price.
        total_tokens, total_cost: of all its episodes, those that failed too.
        latency_s: of its steps; None if there were none.
        asked, ended, failed: episodes; what is missing was not begun, or was interrupted.
        failures: what failed episodes said, each text once.
        decisions: of a language model, in all its episodes; None of what is none.
        understood: the part of them that was understood, from 0 to 1.
        warnings: a sentence for each reason not to believe the results.
    """

    operator_id: str
    total_reward: Mean
    length: Mean
    success: Mean | None
    tokens: Mean | None
    cost: Mean | None
    total_tokens: int | None
    total_cost: float | None
    latency_s: Latency | None
    asked: int
    ended: int
    failed: int
    failures: tuple[str, ...]
    decisions: int | None = None
    understood: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """By how much more one operator gained than another, over the episodes that both ended.

    Attributes:
        unpaired: episodes that one of them ended alone.
    """

    operator_id: str
    against: str
    total_reward: Mean
    unpaired: int

    @property
    def is_clear(self) -> bool:
        """Whether all of the interval is on one side of zero."""
        low, high = self.total_reward.low, self.total_reward.high
        return low is not None and high is not None and (low > 0 or high < 0)

    @property
    def sentence(self) -> str:
        """The difference for people to read."""
        gain = self.total_reward
        more = "more" if (gain.mean or 0) > 0 else "less"
        return (
            f"{self.operator_id} gains {more} than {self.against}: {gain}; {gain.n} paired episodes"
        )


@dataclass(frozen=True)
class GroupResult:
    """The operators of one environment, or of one game, and their differences."""

    group: str
    operators: tuple[OperatorResult, ...]
    differences: tuple[Difference, ...]

    @property
    def label(self) -> str:
        """The group for people to read."""
        return label_of(self.group)

    @property
    def sentences(self) -> list[str]:
        """The warnings, then a sentence for each difference that is clear, or one that none is."""
        warnings = [said for one in self.operators for said in one.warnings]
        clear = [one.sentence for one in self.differences if one.is_clear]
        if clear or not self.differences:
            return warnings + clear
        none = "no difference is clear: the interval of each reaches zero, or is unknown"
        return [*warnings, none]


def label_of(env: str) -> str:
    """Return the name of an environment with no more than the last two parts of the path of its file."""
    path, python, rest = env.partition(".py:")
    return "/".join(path.split("/")[-2:]) + python + rest if python else env


def results_of(
    folder: Path,
    sources: Sequence[Source],
    comparisons: str = "first",
    min_understood: float = MIN_UNDERSTOOD,
) -> list[GroupResult]:
    """Return the results of each group, in the order of the sources.

    folder: of the telemetry; what is not there counts as not begun.

    Args:
        comparisons: "first", of each operator against the first of its group; "pairs", of each with each.
        min_understood: part of a language model's decisions, below which there is a warning.

    Raises:
        ValueError: if telemetry is damaged; names the line.
    """
    groups: dict[str, dict[str, tuple[OperatorResult, Episodes]]] = {}
    for source in sources:
        episodes = _episodes(folder, source)
        latencies = _latencies(folder, source)
        for operator in source.operators:
            mine = [e for e in episodes if e.operator_id == operator]
            own = _by_number(mine) if source.episodes is not None else _by_seed(mine)
            asked = len(own) if source.episodes is None else source.episodes
            price = source.prices.get(operator)
            result = _operator_result(operator, own, latencies.get(operator, []), asked, price)
            result = _with_understood(result, mine, min_understood)
            groups.setdefault(source.group, {})[operator] = result, own
    return [_group_result(name, members, comparisons) for name, members in groups.items()]


def results_as_json(groups: Sequence[GroupResult]) -> list[dict[str, Any]]:
    """Return the results as JSON values, with what is said of them: label, sentences, is_clear."""
    found = []
    for group in groups:
        values = dataclasses.asdict(group)
        for difference, of in zip(values["differences"], group.differences, strict=True):
            difference["is_clear"] = of.is_clear
        found.append({"label": group.label, **values, "sentences": group.sentences})
    return found


def _episodes(folder: Path, source: Source) -> list[Episode]:
    path = telemetry_path(folder, source.run_id, EPISODES)
    if not path.exists():
        return []
    episodes = list(read_telemetry(path, msgspec.json.Decoder(Episode).decode))
    for episode in episodes:
        if episode.total_reward is None:  # JSON has no infinity and no NaN
            episode.status = "failed"
            episode.failure = episode.failure or "its total reward is no finite number"
    return episodes


def _by_number(episodes: Sequence[Episode]) -> Episodes:
    return {(episode.episode, 0): episode for episode in episodes}


def _by_seed(episodes: Sequence[Episode]) -> Episodes:
    found: Episodes = {}
    played: Counter[int] = Counter()
    for episode in sorted(episodes, key=lambda episode: episode.episode):
        seed = -1 if episode.seed is None else episode.seed
        found[seed, played[seed]] = episode
        played[seed] += 1
    return found


def _latencies(folder: Path, source: Source) -> dict[str, list[float]]:
    path = telemetry_path(folder, source.run_id, STEPS)
    found: dict[str, list[float]] = {}
    if path.exists():
        for step in read_telemetry(path, msgspec.json.Decoder(_Step).decode):
            if step.latency_s is not None:
                found.setdefault(step.operator_id, []).append(step.latency_s)
    return found


def _operator_result(
    operator: str,
    episodes: Episodes,
    latencies: list[float],
    asked: int,
    price: Price | None,
) -> OperatorResult:
    ended = _ended(episodes)
    successes = [e.success for e in ended.values() if e.success is not None]
    tokens = {key: e.tokens for key, e in episodes.items()}
    costs = {key: _cost(e, price) for key, e in episodes.items()}
    latency = None
    if latencies:
        median, p95 = np.quantile(latencies, [0.5, 0.95])
        latency = Latency(float(median), float(p95))
    failures = [e.failure or "failed" for e in episodes.values() if e.status != "ended"]
    return OperatorResult(
        operator,
        mean_with_interval([e.reward for e in ended.values()]),
        mean_with_interval([float(e.episode_length) for e in ended.values()]),
        proportion_with_interval(successes) if successes else None,
        _mean_of_known(tokens[key] for key in ended),
        _mean_of_known(costs[key] for key in ended),
        _sum_of_known(tokens.values()),
        _sum_of_known(costs.values()),
        latency,
        asked,
        len(ended),
        len(failures),
        tuple(dict.fromkeys(failures)),
    )


def _with_understood(
    result: OperatorResult, episodes: Sequence[Episode], least: float
) -> OperatorResult:
    decisions = _sum_of_known(episode.decisions for episode in episodes)
    if not decisions:
        return result
    understood = _sum_of_known(episode.understood for episode in episodes) or 0
    said = understanding_warning(result.operator_id, understood, decisions, least)
    return dataclasses.replace(
        result,
        decisions=decisions,
        understood=understood / decisions,
        warnings=result.warnings if said is None else (*result.warnings, said),
    )


def understanding_warning(
    operator_id: str, understood: int, decisions: int, least: float
) -> str | None:
    """Return a sentence if too few of a language model's decisions were understood."""
    if understood >= least * decisions:
        return None
    return (
        f"{operator_id}: {understood} of {decisions} decisions were understood, less than "
        f"{100 * least:g} %: its results say little of the model; telemetry has its answers"
    )


def _cost(episode: Episode, price: Price | None) -> float | None:
    return None if price is None else price.cost(episode.prompt_tokens, episode.completion_tokens)


def _mean_of_known(values: Iterable[float | None]) -> Mean | None:
    known = [float(value) for value in values if value is not None]
    return mean_with_interval(known) if known else None


def _sum_of_known(values: Iterable[NumberT | None]) -> NumberT | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _group_result(
    name: str, members: dict[str, tuple[OperatorResult, Episodes]], comparisons: str
) -> GroupResult:
    pairs = itertools.combinations(members, 2)
    differences = [
        _difference(second, members[second][1], first, members[first][1])
        for first, second in pairs
        if comparisons == "pairs" or first == next(iter(members))
    ]
    return GroupResult(name, tuple(result for result, _ in members.values()), tuple(differences))


def _difference(name: str, episodes: Episodes, against: str, others: Episodes) -> Difference:
    mine, theirs = _ended(episodes), _ended(others)
    # Sorted, so that the interval does not depend on which episodes ended first.
    both = sorted(mine.keys() & theirs.keys())
    differences = [mine[i].reward - theirs[i].reward for i in both]
    unpaired = len(mine.keys() ^ theirs.keys())
    return Difference(name, against, mean_with_interval(differences), unpaired)


def _ended(episodes: Episodes) -> Episodes:
    return {number: e for number, e in episodes.items() if e.status == "ended"}
