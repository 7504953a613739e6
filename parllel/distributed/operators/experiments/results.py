"""Results of an experiment, computed from its telemetry."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from parllel.distributed.operators.experiments.episode_outcome import (
    MIN_UNDERSTOOD,
    understanding_warning,
)
from parllel.distributed.operators.experiments.intervals import (
    LEVEL,
    ConfidenceInterval,
    least_seeds,
    mean_with_interval,
    proportion_with_interval,
)
from parllel.distributed.operators.experiments.telemetry import (
    EPISODES,
    STEPS,
    read_telemetry,
    telemetry_path,
)

COMPARISONS = ("first", "pairs")
NumberT = TypeVar("NumberT", int, float)


class Price(NamedTuple):
    """Price of a million prompt tokens, and of a million completion tokens, in any currency."""

    prompt: float
    completion: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Price | None:
        """Return the price in an operator's settings, or None."""
        price = settings.get("price")
        return None if price is None else cls(float(price["prompt"]), float(price["completion"]))

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """Return the cost of tokens; None if one of the counts is unknown."""
        if prompt_tokens is None or completion_tokens is None:
            return None
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


class RecordedEpisode(msgspec.Struct):
    """The fields of an episode's record that results need. Others are ignored."""

    operator_id: str
    episode: int
    status: str
    total_reward: float | None
    episode_length: int
    seed: int | None = None
    agent_seed: int | None = None
    success: bool | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    decisions: int | None = None
    understood: int | None = None
    failure: str | None = None

    @property
    def reward(self) -> float:
        """The total reward, or 0 if there is none. Only failed episodes may have none."""
        return self.total_reward or 0.0

    @property
    def key(self) -> Key:
        """Key for pairing with other operators' episodes: the seeds, or the number without them."""
        if self.seed is None:
            return -1, self.episode
        return self.seed, -1 if self.agent_seed is None else self.agent_seed


Key = tuple[int, int]
# Episodes by key, in the order of their numbers.
Episodes = dict[Key, list[RecordedEpisode]]


class _RecordedStep(msgspec.Struct):
    operator_id: str
    latency_s: float | None = None


@dataclass(frozen=True)
class Source:
    """Where the episodes of an operator or a game are recorded.

    Attributes:
        group: name of the environment or game. Operators of the same group are compared.
        operators: ids of the operators.
        run_id: run id of the telemetry.
        episodes: number of episodes to play. None on a board, where people start episodes as they
            like.
        prices: prices of tokens, keyed by operator, where known.
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
    """Result of one operator. Means are over the episodes that ended.

    Attributes:
        total_reward, length: means per episode.
        success: fraction of successful episodes; None if success is not defined.
        tokens, cost: means per episode for a language model. None if tokens are not counted, or
            have no price.
        total_tokens, total_cost: sums over all episodes, including failed ones.
        latency_s: latency of the operator's steps. None without steps.
        asked, ended, failed: numbers of episodes requested, ended and failed. The others were not
            started, or were interrupted. On a board, `asked` counts episodes that were started and
            not abandoned.
        failures: distinct messages of failed episodes.
        decisions: number of decisions of a language model over all episodes. None without a
            language model.
        understood: fraction of decisions that were understood, from 0 to 1.
        warnings: a sentence for each reason to distrust the results.
    """

    operator_id: str
    total_reward: ConfidenceInterval
    length: ConfidenceInterval
    success: ConfidenceInterval | None
    tokens: ConfidenceInterval | None
    cost: ConfidenceInterval | None
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

    @property
    def sentence(self) -> str:
        """A sentence on failed episodes; empty if there are none."""
        if not self.failed:
            return ""
        episodes = _count(self.ended + self.failed, "episode")
        are = "is" if self.failed == 1 else "are"
        return f"{self.operator_id}: {self.failed} of {episodes} failed and {are} not in its means"


@dataclass(frozen=True)
class Difference:
    """Difference in total reward between two operators, over pairs of episodes that both ended.

    Episodes with the same seed form a pair. All differences of an experiment are corrected together
    (Bonferroni): if the operators are equal, at most 5 % of experiments call any difference clear.

    Attributes:
        total_reward: the mean difference; `n` is the number of pairs. All intervals of the
            experiment hold simultaneously with a probability of 95 %.
        seeds: number of different seeds among the pairs. Pairs with the same seed count as one for
            the interval.
        failed: the number of pairs that are left out because an episode failed.
        unpaired: the number of episodes that only one of the two has played.
        comparisons: the number of differences that the interval is corrected for.
        is_clear: whether the sign-flip test at that level finds a difference. If there is an interval, it
            then excludes zero.
    """

    operator_id: str
    against: str
    total_reward: ConfidenceInterval
    seeds: int
    failed: int
    unpaired: int
    comparisons: int
    is_clear: bool

    @property
    def sentence(self) -> str:
        """A sentence on the difference and the pairs it is based on."""
        gain, least = self.total_reward, least_seeds(_level(self.comparisons))
        found = f"no clear difference between {self.operator_id} and {self.against}"
        if self.is_clear:
            more = "more" if (gain.mean or 0) > 0 else "less"
            found = f"{self.operator_id} gains {more} than {self.against}"
        if not gain.n:
            return f"{found}: no pairs of episodes{self._left_out}"
        # With enough pairs, only gains that are all equal have no interval.
        over = "over" if gain.low is not None or self.seeds < least else "in each of"
        pairs = _count(gain.n, "pair")
        if self.seeds < gain.n:
            pairs += f" of {_count(self.seeds, 'seed')}"
        if self.seeds < least:
            pairs += f", too few: at least {least}{' seeds' * (self.seeds < gain.n)} are needed"
        if self.comparisons > 1:
            pairs += f", corrected for {self.comparisons} comparisons"
        return f"{found}: {gain} {over} {pairs}{self._left_out}"

    @property
    def _left_out(self) -> str:
        text = ""
        if self.failed:
            are = "is" if self.failed == 1 else "are"
            text += f"; {_count(self.failed, 'pair')} {are} left out, as an episode failed"
        if self.unpaired:
            have = "has" if self.unpaired == 1 else "have"
            text += f"; {_count(self.unpaired, 'episode')} {have} no pair"
        return text


@dataclass(frozen=True)
class GroupResult:
    """The operators of one environment, or of one game, and their differences."""

    group: str
    operators: tuple[OperatorResult, ...]
    differences: tuple[Difference, ...]

    @property
    def label(self) -> str:
        """Display name of the group."""
        return label_of(self.group)

    @property
    def sentences(self) -> list[str]:
        """Warnings, failures of operators, then a sentence for each difference, clear ones first."""
        warnings = [warning for result in self.operators for warning in result.warnings]
        failed = [result.sentence for result in self.operators if result.failed]
        differences = sorted(self.differences, key=lambda difference: not difference.is_clear)
        return [*warnings, *failed, *(difference.sentence for difference in differences)]


def label_of(env: str) -> str:
    """Return the name of an environment, with at most the last two parts of the path of its file."""
    path, python, rest = env.partition(".py:")
    return "/".join(path.split("/")[-2:]) + python + rest if python else env


def results_of(
    folder: Path,
    sources: Sequence[Source],
    comparisons: str = "first",
    min_understood: float = MIN_UNDERSTOOD,
) -> list[GroupResult]:
    """Return the results of each group, in the order of the sources.

    Args:
        folder: folder of the telemetry. Operators without files count as not started.
        comparisons: "first" compares each operator with the first of its group; "pairs" compares
            all pairs.
        min_understood: fraction of a language model's decisions below which there is a warning.

    Raises:
        ValueError: if telemetry is damaged. Names the line.
    """
    groups: dict[str, dict[str, tuple[OperatorResult, Episodes]]] = {}
    for source in sources:
        episodes = _episodes(folder, source)
        latencies = _latencies(folder, source)
        for operator in source.operators:
            mine = [e for e in episodes if e.operator_id == operator]
            own = _by_key(mine)
            price = source.prices.get(operator)
            result = _operator_result(
                operator, own, latencies.get(operator, []), source.episodes, price
            )
            result = _with_understood(result, mine, min_understood)
            groups.setdefault(source.group, {})[operator] = result, own
    pairs = {
        name: _pairs({operator: own for operator, (_, own) in members.items()}, comparisons)
        for name, members in groups.items()
    }
    # A difference without pairs claims nothing and needs no correction.
    n_comparisons = max(1, sum(bool(p.gains) for of_group in pairs.values() for p in of_group))
    return [
        GroupResult(
            name,
            tuple(result for result, _ in members.values()),
            tuple(_difference(of_two, n_comparisons) for of_two in pairs[name]),
        )
        for name, members in groups.items()
    ]


def results_as_json(groups: Sequence[GroupResult]) -> list[dict[str, Any]]:
    """Return the results as JSON values, including labels and sentences."""
    return [
        {"label": group.label, **dataclasses.asdict(group), "sentences": group.sentences}
        for group in groups
    ]


def _episodes(folder: Path, source: Source) -> list[RecordedEpisode]:
    path = telemetry_path(folder, source.run_id, EPISODES)
    if not path.exists():
        return []
    episodes = list(read_telemetry(path, msgspec.json.Decoder(RecordedEpisode).decode))
    for episode in episodes:
        if episode.total_reward is None:  # NaN or infinity, which JSON lacks
            episode.status = "failed"
            episode.failure = episode.failure or "its total reward is not a finite number"
    return episodes


def _by_key(episodes: Sequence[RecordedEpisode]) -> Episodes:
    """Return the episodes by key, in the order of their numbers."""
    # A failed episode may have been played again under its number. Both count, each once.
    newest = {(episode.episode, episode.status): episode for episode in episodes}
    found: Episodes = {}
    for _, episode in sorted(newest.items()):
        found.setdefault(episode.key, []).append(episode)
    return found


def _latencies(folder: Path, source: Source) -> dict[str, list[float]]:
    path = telemetry_path(folder, source.run_id, STEPS)
    found: dict[str, list[float]] = {}
    if path.exists():
        for step in read_telemetry(path, msgspec.json.Decoder(_RecordedStep).decode):
            if step.latency_s is not None:
                found.setdefault(step.operator_id, []).append(step.latency_s)
    return found


def _operator_result(
    operator: str,
    episodes: Episodes,
    latencies: list[float],
    asked: int | None,
    price: Price | None,
) -> OperatorResult:
    played = [e for of_key in episodes.values() for e in of_key]
    ended = _ended(played)
    latency = None
    if latencies:
        median, p95 = np.quantile(latencies, [0.5, 0.95])
        latency = Latency(float(median), float(p95))
    failures = [e.failure or "failed" for e in played if e.status != "ended"]
    return OperatorResult(
        operator,
        _mean(ended, lambda e: e.reward) or ConfidenceInterval(None, None, None, 0),
        _mean(ended, lambda e: e.episode_length) or ConfidenceInterval(None, None, None, 0),
        _success(ended),
        _mean(ended, lambda e: e.tokens),
        _mean(ended, lambda e: _cost(e, price)),
        _sum_of_known(e.tokens for e in played),
        _sum_of_known(_cost(e, price) for e in played),
        latency,
        max(asked or 0, len({e.episode for e in played})),
        len(ended),
        len(failures),
        tuple(dict.fromkeys(failures)),
    )


def _mean(
    episodes: Sequence[RecordedEpisode], value_of: Callable[[RecordedEpisode], float | None]
) -> ConfidenceInterval | None:
    """Return the mean over the episodes that have a value, or None if none has."""
    known = [(e.key, float(value)) for e in episodes if (value := value_of(e)) is not None]
    if not known:
        return None
    keys, values = zip(*known, strict=True)
    return mean_with_interval(values, seeds=keys)


def _success(episodes: Sequence[RecordedEpisode]) -> ConfidenceInterval | None:
    known = [(e.key, e.success) for e in episodes if e.success is not None]
    if not known:
        return None
    keys, successes = zip(*known, strict=True)
    return proportion_with_interval(successes, seeds=keys)


def _with_understood(
    result: OperatorResult, episodes: Sequence[RecordedEpisode], least: float
) -> OperatorResult:
    decisions = _sum_of_known(episode.decisions for episode in episodes)
    if not decisions:
        return result
    understood = _sum_of_known(episode.understood for episode in episodes) or 0
    warning = understanding_warning(result.operator_id, understood, decisions, least)
    return dataclasses.replace(
        result,
        decisions=decisions,
        understood=understood / decisions,
        warnings=result.warnings if warning is None else (*result.warnings, warning),
    )


def _cost(episode: RecordedEpisode, price: Price | None) -> float | None:
    return None if price is None else price.cost(episode.prompt_tokens, episode.completion_tokens)


def _sum_of_known(values: Iterable[NumberT | None]) -> NumberT | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


class _Pairs(NamedTuple):
    operator_id: str
    against: str
    keys: list[Key]
    gains: list[float]
    failed: int
    unpaired: int


def _pairs(members: Mapping[str, Episodes], comparisons: str) -> list[_Pairs]:
    firsts = list(members) if comparisons == "pairs" else list(members)[:1]
    return [
        _paired(second, members[second], first, members[first])
        for first, second in itertools.combinations(members, 2)
        if first in firsts
    ]


def _paired(name: str, mine: Episodes, against: str, theirs: Episodes) -> _Pairs:
    found: list[tuple[Key, float]] = []
    failed = unpaired = 0
    # Sorted, so that the interval does not depend on which episodes ended first.
    for key in sorted(mine.keys() | theirs.keys()):
        own, others = mine.get(key, []), theirs.get(key, [])
        # The k-th ended episode of each, since failed ones may have been played again.
        ended = list(zip(_ended(own), _ended(others), strict=False))
        found += [(key, mine_k.reward - theirs_k.reward) for mine_k, theirs_k in ended]
        failed += min(len(own), len(others)) - len(ended)
        unpaired += abs(len(own) - len(others))
    keys, gains = [key for key, _ in found], [gain for _, gain in found]
    return _Pairs(name, against, keys, gains, failed, unpaired)


def _difference(pairs: _Pairs, comparisons: int) -> Difference:
    level, seeds = _level(comparisons), len(set(pairs.keys))
    gain = mean_with_interval(pairs.gains, seeds=pairs.keys, level=level)
    if gain.low is not None and gain.high is not None:
        is_clear = gain.low > 0 or gain.high < 0
    else:
        # Enough seeds with equal gains: there is no interval, but the test still rejects zero.
        is_clear = seeds >= least_seeds(level) and gain.mean != 0
    return Difference(
        pairs.operator_id,
        pairs.against,
        gain,
        seeds,
        pairs.failed,
        pairs.unpaired,
        comparisons,
        is_clear,
    )


def _level(comparisons: int) -> float:
    return 1 - (1 - LEVEL) / comparisons


def _ended(episodes: Iterable[RecordedEpisode]) -> list[RecordedEpisode]:
    return [e for e in episodes if e.status == "ended"]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
