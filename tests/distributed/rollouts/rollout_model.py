"""What steps and fragments must be, by a plain Python model.

An observation of CountingEnv is a place: the mark of its process, which comes from the seed, the number of
the episode, and that of the step. With the lengths of episodes and what the agent drew, a place tells all
else of a step, so neither the environment nor the agent is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

N_ACTIONS = 4
Place = tuple[int, int, int]  # mark, episode, step


class Step(NamedTuple):
    """All that a fragment has of one step, in numbers of Python."""

    place: Place
    draw: int
    version: int
    action: int
    value: float
    weight: float
    previous: int  # action, as a recurrent agent remembers it
    reward: float
    terminated: bool
    truncated: bool
    after: Place
    final: Place | None

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


def weight_of(version: int) -> float:
    """Return the weight of the agent that acts with a version."""
    return 10.0 * version


@dataclass(frozen=True)
class Law:
    """How an environment and its agent behave.

    lengths: steps of its episodes, in order, again and again; even ones terminate, odd ones are truncated.
    """

    lengths: tuple[int, ...]
    recurrent: bool

    def step(
        self, place: Place, draw: int, version: int, *, memory: float = 0.0, previous: int = 0
    ) -> Step:
        """Return what must be in a fragment of a step from `place`."""
        mark, episode, count = place
        length = self.lengths[episode % len(self.lengths)]
        assert 0 <= count < length, f"{place} is no place before the end of an episode of {length}"
        value = mark + 2 * episode + 3 * count + memory
        action = (int(value) + draw + previous) % N_ACTIONS
        last = (mark, episode, count + 1)
        terminated = count + 1 == length and episode % 2 == 0
        truncated = count + 1 == length and episode % 2 == 1
        over = terminated or truncated
        return Step(
            place,
            draw,
            version,
            action,
            float(value),
            weight_of(version),
            previous,
            count + 1 + action / 8,
            terminated,
            truncated,
            (mark, episode + 1, 0) if over and not self.recurrent else last,
            last if truncated and not self.recurrent else None,
        )


def next_place(step: Step) -> Place:
    """Return where the step after this one begins."""
    mark, episode, _ = step.place
    return (mark, episode + 1, 0) if step.done else step.after


def next_memory(step: Step, memory: float) -> tuple[float, int]:
    """Return what a recurrent agent remembers after a step: its number, and the action."""
    seen = step.value - memory
    return (0.0, 0) if step.done else ((2 * memory + seen) % 16, step.action)


# ---------------------------------------------------------------------- what is read


def place_of(observation: Any) -> Place:
    mark, episode, count = np.asarray(observation).tolist()
    return int(mark), int(episode), int(count)


def read_fragment(fragment: Any) -> list[Step]:
    """Return the steps of a fragment, as it says they were."""
    env, agent = fragment.env, fragment.agent
    info, n = agent.agent_info._asdict(), fragment.n_steps
    observed = [*map(place_of, env.observation[:n])]
    # The row after the end of an episode, with a recurrent agent, has its last observation.
    after = [*observed[1:], place_of(fragment.next_observation)]
    final = {row: place_of(last) for row, last in fragment.final_observations.items()}
    assert all(0 <= row < n for row in final)
    return [
        Step(
            observed[row],
            int(info["draw"][row]),
            int(env.version[row]),
            int(agent.action[row]),
            float(info["value"][row]),
            float(info["weight"][row]),
            int(info["prev_action"][row]) if "prev_action" in info else 0,
            float(env.reward[row]),
            bool(env.terminated[row]),
            bool(env.truncated[row]),
            after[row],
            final.get(row),
        )
        for row in range(n)
    ]


def oldest_of(fragment: Any) -> int:
    """Return the lowest version of its steps, which says how old a fragment is."""
    return min(fragment.env.version[: fragment.n_steps].tolist())


def check_padding(fragment: Any) -> None:
    """Check that there is nothing after the end of a recurrent agent's fragment but the last observation."""
    n, env, agent = fragment.n_steps, fragment.env, fragment.agent
    assert env.valid.tolist() == [row < n for row in range(fragment.length)]
    others = (env.reward, env.done, env.first, env.version, agent.action, agent.agent_info.value)
    assert not any(leaf[n:].any() for leaf in others)
    if n < fragment.length:
        assert place_of(env.observation[n]) == place_of(fragment.next_observation)
        assert not env.observation[n + 1 :].any()


@dataclass
class Reader:
    """Check the fragments of one environment by nothing but themselves, in the order in which they were cut.

    gaps: whether some may be missing, as they were dropped on the way.
    """

    law: Law
    length: int
    gaps: bool = False
    last: Any = None
    steps: list[Step] = field(default_factory=list)  # of the last fragment
    marks: list[int] = field(default_factory=list)

    def read(self, fragment: Any) -> None:
        steps = read_fragment(fragment)
        self._check_steps(fragment, steps)
        env, n = fragment.env, len(steps)
        versions = [step.version for step in steps]
        assert (fragment.oldest_version, fragment.newest_version) == (versions[0], versions[-1])
        joins = self.last is not None and fragment.follows(self.last)
        assert np.array_equal(env.done, env.terminated | env.truncated)
        firsts = [self.steps[-1].done if joins else True, *(step.done for step in steps[:-1])]
        if not self.gaps or fragment.sequence == 0:
            assert env.first[:n].tolist() == firsts
        # A break in the middle of an episode shortens the fragment, and nothing else is a break.
        short = n < self.length and not (self.law.recurrent and steps[-1].done)
        broken = short and not steps[-1].done
        assert env.aborted.tolist() == [broken and row == n - 1 for row in range(fragment.length)]
        if joins:
            assert not self._broken
            assert steps[0].place == next_place(self.steps[-1])
        else:
            self._check_gap(fragment, steps)
        self._broken = short
        self.last, self.steps = fragment, steps

    _broken = False

    def _check_steps(self, fragment: Any, steps: list[Step]) -> None:
        memory, previous = 0.0, 0
        if self.law.recurrent:
            check_padding(fragment)
            memory, previous = float(fragment.agent.initial_rnn_state), steps[0].previous
        version = self.steps[-1].version if self.steps else 0
        for i, step in enumerate(steps):
            expected = self.law.step(
                step.place, step.draw, step.version, memory=memory, previous=previous
            )
            assert step == expected
            assert step.version >= version, "an older version came after a newer one"
            assert i == 0 or step.place == next_place(steps[i - 1])
            version = step.version
            if self.law.recurrent:
                memory, previous = next_memory(step, memory)

    def _check_gap(self, fragment: Any, steps: list[Step]) -> None:
        mark = steps[0].place[0]
        if self.last is not None:
            # Numbers alone say that something is missing.
            assert (fragment.epoch, fragment.sequence) > (self.last.epoch, self.last.sequence)
        if not self.gaps:
            assert fragment.sequence == 0
            assert self.last is None or fragment.epoch > self.last.epoch
        if self.marks and mark == self.marks[-1]:
            assert not self._broken or fragment.epoch > self.last.epoch
            assert steps[0].place > self.steps[-1].place, "steps came again"
        else:
            assert mark not in self.marks, "a process came again"
            self.marks.append(mark)


# ---------------------------------------------------------------------- what is expected


class Expected(NamedTuple):
    """A fragment that must have been cut."""

    epoch: int
    sequence: int
    steps: list[Step]
    first: list[bool]
    aborted: bool
    memory: float

    def check(self, fragment: Any) -> None:
        assert (fragment.epoch, fragment.sequence) == (self.epoch, self.sequence)
        assert read_fragment(fragment) == self.steps
        n = len(self.steps)
        assert fragment.env.first[:n].tolist() == self.first
        aborted = [self.aborted and row == n - 1 for row in range(fragment.length)]
        assert fragment.env.aborted.tolist() == aborted
        if "initial_rnn_state" in fragment.agent._fields:
            assert float(fragment.agent.initial_rnn_state) == self.memory


class Stream:
    """Cut the steps of one environment into fragments, in plain lists.

    Attributes:
        expected: the fragments so far.
        dropped: how many begun ones became too old.
        begun: the steps of the running one.
    """

    def __init__(self, law: Law, length: int) -> None:
        self.law, self.length = law, length
        self.expected: list[Expected] = []
        self.dropped = self.n_steps = self.n_dropped = 0
        self.begun: list[Step] = []
        self._first: list[bool] = []
        self._epoch = self._sequence = 0
        self._is_first = True
        self._marks: set[int] = set()
        # Of the last step, until the process dies.
        self._follows: Place | None = None
        self._memory, self._previous, self._memory_at_begin = 0.0, 0, 0.0

    def step(self, place: Place, draw: int, version: int) -> Step:
        """Return the step that must have come next."""
        if self._follows is None:
            assert place[1:] == (0, 0)
            assert place[0] not in self._marks, "two processes with one seed"
            self._marks.add(place[0])
        else:
            assert place == self._follows
        step = self.law.step(place, draw, version, memory=self._memory, previous=self._previous)
        if not self.begun:
            self._memory_at_begin = self._memory
        self._follows = next_place(step)
        if self.law.recurrent:
            self._memory, self._previous = next_memory(step, self._memory)
        self.begun.append(step)
        self._first.append(self._is_first)
        self._is_first = step.done
        self.n_steps += 1
        if len(self.begun) == self.length or (self.law.recurrent and step.done):
            self._cut(aborted=False)
        return step

    def crash(self) -> None:
        """Note that the process has died."""
        if self.begun:
            self._cut(aborted=not self._is_first)
        self._break()
        self._follows = None
        self._memory, self._previous = 0.0, 0

    def settle(self, oldest_allowed: int) -> None:
        """Drop what was begun if it is too old."""
        if self.begun and min(step.version for step in self.begun) < oldest_allowed:
            self.dropped += 1
            self.n_dropped += len(self.begun)
            self.begun, self._first = [], []
            self._break()

    def _cut(self, *, aborted: bool) -> None:
        self.expected.append(
            Expected(
                self._epoch, self._sequence, self.begun, self._first, aborted, self._memory_at_begin
            )
        )
        self.begun, self._first = [], []
        self._sequence += 1

    def _break(self) -> None:
        self._epoch, self._sequence, self._is_first = self._epoch + 1, 0, True
