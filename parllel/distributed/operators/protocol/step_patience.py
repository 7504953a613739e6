"""How long a decision may take, where nobody says it: some decide slower than others."""

from __future__ import annotations

from collections.abc import Iterable

from parllel.distributed.operators.protocol.operator_config import OperatorConfig

STEP_S = 30.0
# A model's server may be slow or busy, be asked again, and its answer be corrected; a person thinks.
_LONGER_S = {"human": 3600.0, "llm": 600.0}


def step_timeout_of(operators: Iterable[OperatorConfig], given: float | None) -> float:
    """Return the seconds for a step of all operators: those given, else what the slowest kind needs."""
    if given is not None:
        return given
    return max((_LONGER_S.get(one.operator_type, STEP_S) for one in operators), default=STEP_S)
