"""A piece of the experience of one environment, which can be sent anywhere and joined with the next."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_leaves
from parllel.types import Tree

FragmentKey: TypeAlias = tuple[str, int, int, int]


# Compared by `key` or by `digest`, since what `==` of arrays says is no answer.
@dataclass(frozen=True, eq=False, repr=False)
class SampleFragment:
    """Consecutive steps of one environment, and the observation after them.

    Fields are named as in `Samples`, but have no dimension of environments: leaves are numpy arrays [L, ...].
    Row t holds the observation that the action of row t answers, and the reward and the flags that followed
    that action. The fragment owns its memory; arrays of a `FragmentCutter` are read-only.

    Attributes:
        env: `observation`, `reward`, `terminated`, `truncated`, `done`, `env_info` (None if none is stored),
            and three that only fragments have:
            `first` [L] bool, true where no step of this environment comes before: at the start of an episode,
            and after a gap;
            `aborted` [L] bool, true where the episode broke off after this step although the environment had
            not ended it, because its process crashed, for example: values are bootstrapped there;
            `version` [L] int64, the version of the weights that chose the action.
            For recurrent agents there is `valid` [L] bool as well, which is false after the end of the
            episode. All else is zero there, except the first such row of `observation`, which holds the
            episode's last observation.
        agent: `action` and `agent_info` (log probability and value among it, where the agent gives them);
            `observation`, where the agent saw something else than `env.observation`; `initial_rnn_state`
            [...], the recurrent state before step 0.
        next_observation: that after the last step [...]: the first one of the next fragment. For recurrent
            agents, if the episode ended with this fragment, the last one of that episode.
        producer: name of the worker that the steps come from.
        environment: number of the environment in that worker.
        epoch: how many gaps there were before in the steps of this environment.
        sequence: number of the fragment since the last gap.
        final_observations: last observations [...] of episodes that were truncated, by the row of the end.
            For recurrent agents `next_observation` is the only one.
        instance_id: of the producer, random text by which two of one name are told apart; "" if it has none.

    Raises:
        ValueError: if there is no step in it.
    """

    env: NamedTuple
    agent: NamedTuple
    next_observation: Tree
    producer: str
    environment: int
    epoch: int
    sequence: int
    final_observations: Mapping[int, Tree] = field(default_factory=dict)
    instance_id: str = ""

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise ValueError("SampleFragment: expected at least one step, got none")

    @property
    def length(self) -> int:
        """L, the number of rows."""
        return len(self.env.version)

    @property
    def n_steps(self) -> int:
        """The number of steps, which is `length` unless there is `env.valid`."""
        return len(self._versions)

    @property
    def key(self) -> FragmentKey:
        """Producer, environment, epoch and sequence number; no two fragments have the same."""
        return self.producer, self.environment, self.epoch, self.sequence

    @property
    def oldest_version(self) -> int:
        """The lowest version of the weights that chose an action here: staleness is judged by it."""
        return int(self._versions.min())

    @property
    def newest_version(self) -> int:
        """The highest version of the weights that chose an action here."""
        return int(self._versions.max())

    @property
    def nbytes(self) -> int:
        """Bytes in all arrays."""
        return sum(leaf.nbytes for _, leaf in buffer_leaves(self._tree()))

    def follows(self, other: SampleFragment) -> bool:
        """Return whether the first step here came directly after the last step of `other`."""
        return other.key[:3] == self.key[:3] and other.sequence + 1 == self.sequence

    def digest(self) -> str:
        """Return 64 hexadecimal digits (SHA-256), equal for equal fragments whoever produced them.

        All counts but the producer's name: names of fields, dtypes, shapes, bits, and the numbers of
        environment, epoch and sequence.
        """
        state = hashlib.sha256(repr(self.key[1:]).encode())
        leaves = dict(buffer_leaves(self._tree()))
        # Sorted, as nodes of one origin may have their fields in another order than those of another.
        for path in sorted(leaves):
            leaf: NDArray[Any] = np.asarray(leaves[path], order="C")
            state.update(f"{path} {leaf.dtype.str} {leaf.shape};".encode())
            state.update(leaf.tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        producer, environment, epoch, sequence = self.key
        return (
            f"SampleFragment({self.n_steps} steps of {producer!r}, environment {environment}, "
            f"epoch {epoch}, sequence {sequence}, versions {self.oldest_version} to "
            f"{self.newest_version})"
        )

    @property
    def _versions(self) -> NDArray[np.int64]:
        env = self.env._asdict()  # as asking a node for a field that it lacks is slow
        versions: NDArray[np.int64] = env["version"]
        return versions[env["valid"]] if "valid" in env else versions

    def _tree(self) -> NamedTuple:
        # Numbers are no names of fields for `buffer_leaves` to sort, so they become text.
        final = {str(row): observation for row, observation in self.final_observations.items()}
        return NamedTuple(
            env=self.env, agent=self.agent, next_observation=self.next_observation, final=final
        )


@dataclass(frozen=True)
class PackedFragment:
    """What a storage judges a fragment by, and the fragment itself.

    The bytes belong to whoever has received them: what Ray hands out otherwise is a view of its object store,
    read-only, and not to be evicted as long as the view lives.
    """

    key: FragmentKey
    oldest_version: int
    instance_id: str
    content: bytes = field(repr=False)

    @classmethod
    def of(cls, fragment: SampleFragment) -> PackedFragment:
        """Pack a fragment."""
        content = pickle.dumps(fragment, protocol=5)
        return cls(fragment.key, fragment.oldest_version, fragment.instance_id, content)

    def unpack(self) -> SampleFragment:
        """Return the fragment; its arrays own their memory."""
        fragment: SampleFragment = pickle.loads(self.content)
        return fragment
