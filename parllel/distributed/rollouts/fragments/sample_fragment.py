"""A fragment of one environment's experience, which can be sent anywhere and joined with the next."""

# cutter --> SampleFragment -- one object --> sender --> ReplayBuffer -- one object --> trainer
# on Ray:    SampleFragment --> sender: PackedFragment -- bytes --> BufferActor -- bytes --> trainer
#            Large fragments instead stay in Ray's object store; see `on_ray/large_fragments.py`.

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


# Compare fragments by `key` or `digest`: `==` of arrays is an array.
@dataclass(frozen=True, eq=False, repr=False)
class SampleFragment:
    """Consecutive steps of one environment, and the observation after them.

    Fields are named as in `Samples`, without the environment dimension: leaves are numpy arrays [L, ...].
    Row t holds the observation before the action of row t, and the reward and flags after it. The fragment
    owns its memory; arrays of a `FragmentCutter` are read-only.

    Attributes:
        env: `observation`, `reward`, `terminated`, `truncated`, `done`, `env_info` (None if none is stored),
            and three that only fragments have:
            `first` [L] bool, True at the start of an episode and after a gap;
            `aborted` [L] bool, True where the episode broke off after this step without ending, for example
            because its process crashed: values are bootstrapped there;
            `version` [L] int64, the version of the weights that chose the action.
            For recurrent agents there is also `valid` [L] bool, which is False after the end of the episode.
            All other fields are zero there, except the first such row of `observation`, which holds the
            episode's last observation.
        agent: `action` and `agent_info` (such as log probability and value); `observation`, if the agent's
            differs from `env.observation`; `initial_rnn_state` [...], the recurrent state before step 0.
        next_observation: observation [...] after the last step, the first of the next fragment. For recurrent
            agents whose episode ended with this fragment, the last observation of that episode.
        producer: name of the worker.
        environment: number of the environment in the worker.
        epoch: number of earlier gaps in the steps of this environment.
        sequence: number of the fragment since the last gap.
        final_observations: last observations [...] of truncated episodes, keyed by row. For
            recurrent agents, `next_observation` holds the only one.
        instance_id: random text that distinguishes producers of the same name; "" if there is none.

    Raises:
        ValueError: if the fragment has no step.
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
        # Refused here: `oldest_version` would fail later, and in the sender's thread.
        if self.n_steps < 1:
            raise ValueError("SampleFragment: expected at least one step, got none")

    @property
    def length(self) -> int:
        """L, the number of rows."""
        return len(self.env.version)

    @property
    def n_steps(self) -> int:
        """The number of steps. It equals `length` unless the fragment has `env.valid`."""
        return len(self._versions)

    @property
    def key(self) -> FragmentKey:
        """Producer, environment, epoch and sequence number. Unique."""
        return self.producer, self.environment, self.epoch, self.sequence

    @property
    def oldest_version(self) -> int:
        """The lowest version of the weights that chose an action here, which determines staleness."""
        return int(self._versions.min())

    @property
    def newest_version(self) -> int:
        """The highest version of the weights that chose an action here."""
        return int(self._versions.max())

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(leaf.nbytes for _, leaf in buffer_leaves(self._tree()))

    def follows(self, other: SampleFragment) -> bool:
        """Return whether this fragment directly continues `other`."""
        return other.key[:3] == self.key[:3] and other.sequence + 1 == self.sequence

    def digest(self) -> str:
        """Return a SHA-256 digest in hex, which does not depend on the producer's name.

        It covers names of fields, dtypes, shapes and bits, and the numbers of environment, epoch and
        sequence.
        """
        state = hashlib.sha256(repr(self.key[1:]).encode())
        leaves = dict(buffer_leaves(self._tree()))
        # Sorted, because fields may be in another order if they come from another source.
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
        env = self.env._asdict()  # looking up a missing field of a node would be slow
        versions: NDArray[np.int64] = env["version"]
        return versions[env["valid"]] if "valid" in env else versions

    def _tree(self) -> NamedTuple:
        # As text, because `buffer_leaves` sorts names of fields, which are strings.
        final = {str(row): observation for row, observation in self.final_observations.items()}
        return NamedTuple(
            env=self.env, agent=self.agent, next_observation=self.next_observation, final=final
        )


@dataclass(frozen=True)
class FragmentLabel:
    """The attributes of a fragment that a storage needs.

    Attributes:
        key, oldest_version, instance_id: as in SampleFragment.
    """

    # ReplayBuffer reads only these three, so the actor never unpickles a fragment.
    key: FragmentKey
    oldest_version: int
    instance_id: str


@dataclass(frozen=True)
class PackedFragment(FragmentLabel):
    """A pickled fragment.

    The receiver owns the bytes. Arrays would arrive as read-only views of Ray's object store, which cannot
    evict them as long as the views exist.
    """

    content: bytes = field(repr=False)

    @classmethod
    def of(cls, fragment: SampleFragment) -> PackedFragment:
        """Pack a fragment."""
        # In the sender's thread, while the worker goes on. Without `buffer_callback`, the arrays
        # are copied into the bytes.
        content = pickle.dumps(fragment, protocol=5)
        return cls(fragment.key, fragment.oldest_version, fragment.instance_id, content)

    def unpack(self) -> SampleFragment:
        """Unpickle the fragment. Its arrays own their memory."""
        # Safe only because workers belong to the run: Ray unpickles whatever they send, too.
        fragment: SampleFragment = pickle.loads(self.content)
        return fragment
