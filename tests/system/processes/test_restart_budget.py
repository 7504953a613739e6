from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.errors import RestartsUsedUpError
from parllel.system.processes import RestartBudget

SECONDS = st.integers(0, 50).map(lambda tenths: tenths / 8)  # exact as floats


@given(
    most=st.integers(0, 5),
    within_s=SECONDS.filter(bool),
    pauses=st.tuples(SECONDS, SECONDS).map(sorted),
    gaps=st.lists(SECONDS, max_size=30),
)
def test_agrees_with_a_plain_model(
    most: int, within_s: float, pauses: list[float], gaps: list[float]
) -> None:
    now = 100.0
    budget = RestartBudget(most, within_s, *pauses, clock=lambda: now)
    restarts: list[float] = []
    for number, gap in enumerate(gaps):
        now += gap
        counting = [t for t in restarts if t > now - within_s]
        assert budget.left == most - len(counting)
        if len(counting) == most:
            with pytest.raises(RestartsUsedUpError, match=f"death {number}$"):
                budget.restart(f"death {number}")
            continue
        pause_s = pauses[0]
        for _ in counting:
            pause_s = min(2 * pause_s, pauses[1])
        assert budget.restart(f"death {number}") == pause_s
        restarts.append(now)


def test_error_names_the_last_reasons() -> None:
    budget = RestartBudget(3, 60.0, clock=lambda: 0.0)
    assert [budget.restart(RuntimeError(f"reason {i}")) for i in range(3)] == [0.1, 0.2, 0.4]
    with pytest.raises(
        RestartsUsedUpError,
        match=r"^3 restarts within 60 s are used up; .* last reasons:\n  reason 1\n  reason 2\n  reason 3$",
    ):
        budget.restart("reason 3")


def test_pauses_stay_finite_after_thousands() -> None:
    budget = RestartBudget(5000, 60.0, 1e-9, float("inf"), clock=lambda: 0.0)
    assert max(budget.restart("any") for _ in range(5000)) == 1e-9 * 2**64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1.0), "most: expected at least 0, got -1"),
        ((1, 0.0), "within_s: expected more than 0, got 0"),
        ((1, float("nan")), "within_s: expected more than 0, got nan"),
        ((1, 1.0, -1.0), "first_pause_s: expected from 0 to longest_pause_s"),
        ((1, 1.0, 2.0, 1.0), r"longest_pause_s \(1.0\), got 2.0"),
    ],
)
def test_wrong_arguments(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RestartBudget(*arguments)  # type: ignore[arg-type]
