"""Types shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

# A tree: buffers, named tuples or dicts, with arrays, scalars or None as leaves.
Tree: TypeAlias = Any
# Return type of `state()`: JSON values and numpy arrays, in dicts and lists.
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class BatchSpec:
    """The size of a batch: `T` time steps of `B` environments.

    Raises:
        ValueError: if either is less than one.
    """

    T: int
    B: int

    def __post_init__(self) -> None:
        for name in ("T", "B"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"BatchSpec.{name}: expected an int of at least 1, got {value!r}")

    @property
    def size(self) -> int:
        """Environment steps in one batch."""
        return self.T * self.B

    @property
    def shape(self) -> tuple[int, int]:
        """`(T, B)`."""
        return (self.T, self.B)


def class_path(value: object) -> str:
    """Return the class of a value with its module, for errors: other packages have a PgAgent too."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def overrides(part: object, base: type, *methods: str) -> bool:
    """Return whether an object or its class has a method of its own in place of one of `base`."""
    kind, own = type(part), vars(part)
    # A loop, as samplers ask in every batch: a generator takes twice the time.
    for name in methods:  # noqa: SIM110
        if name in own or getattr(kind, name) is not getattr(base, name):
            return True
    return False


class CompiledActs(NamedTuple):
    """How the actions of a whole batch are found in compiled code.

    Attributes:
        source: "given" for actions that are in the batch already; "categorical" or "gaussian" for a policy.
        arguments: the arguments of the policy's compiled function, from the noise on.
    """

    source: str
    arguments: tuple[Any, ...] = ()


class _Closes(Protocol):
    def close(self) -> None: ...


ClosingT = TypeVar("ClosingT", bound="Closeable")


class Closeable:
    """Mixin that calls `close` at the end of a `with` block, also after an error."""

    def __enter__(self: ClosingT) -> ClosingT:
        return self

    def __exit__(
        self: _Closes,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
