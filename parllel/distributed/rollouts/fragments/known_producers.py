"""Remember which fragments of which producers have come, in memory that does not grow with the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey

# A worker that is started again has a new name. Those that run are far fewer, and an earlier one whose
# fragments are still on their way was heard of more lately than this many others.
MOST_PRODUCERS = 10_000


@dataclass
class _Producer:
    incarnation: str
    # The last fragment of each environment as (epoch, sequence): all before it came earlier. Memory of all
    # keys would grow with the run.
    last: dict[int, tuple[int, int]] = field(default_factory=dict)


class KnownProducers:
    """Tell new fragments from those that are added again, and producers of one name apart.

    Only the producers that were heard of last are remembered.
    """

    def __init__(self) -> None:
        # The one that was heard of last comes last.
        self._producers: dict[str, _Producer] = {}

    def hear_of(self, name: str, incarnation: str) -> bool:
        """Remember a producer; return False if another one has its name."""
        producer = self._producers.pop(name, None) or _Producer(incarnation)
        self._producers[name] = producer
        if len(self._producers) > MOST_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        return producer.incarnation == incarnation

    def has_come(self, key: FragmentKey) -> bool:
        """Return whether a fragment, or a later one of its environment, was noted."""
        name, environment, epoch, sequence = key
        producer = self._producers.get(name)
        return producer is not None and (epoch, sequence) <= producer.last.get(
            environment, (-1, -1)
        )

    def note(self, key: FragmentKey) -> None:
        """Remember that a fragment has come."""
        name, environment, epoch, sequence = key
        # It may be unknown again, if it waited for room that long.
        if (producer := self._producers.get(name)) is not None:
            producer.last[environment] = (epoch, sequence)
