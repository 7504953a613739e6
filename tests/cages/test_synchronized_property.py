"""Samples do not depend on which processes step the environments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parllel.buffers import buffer_leaves
from parllel.buffers.tree import buffer_rotate
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.system.waits import available_kinds
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import FIRST, run, run_groups
from parllel.testing.cages.row_reference import draw_actions, make_samples


@st.composite
def divisions(draw: st.DrawFn) -> dict[str, Any]:
    """Return a number of environments, and how they are divided."""
    n = draw(st.integers(1, 7))
    n_main = draw(st.integers(0, n - 1))
    return {
        "n": n,
        "n_workers": draw(st.integers(1, min(n - n_main, 3))),
        "n_groups": draw(st.integers(1, min(n, 3))),
        "participate": n_main > 0,
        "n_main": n_main or None,
    }


def everything(cage: Any, samples: Any, T: int, decorrelation: list[int]) -> list[Any]:
    """Use all that writes into rows, and return all that it left, bit by bit."""
    cage.set_samples_buffer(samples, slice(FIRST, FIRST + cage.n))
    actions = draw_actions(CountingEnv().action_space, 0, 3, T * cage.n)
    run_groups(cage, "start_reset", 0)
    run(cage, "start_decorrelation", decorrelation, 0)
    found: list[Any] = []
    for k in range(3):
        if k and not cage.reset_automatically:
            run_groups(cage, "start_reset", 0, all_envs=False)
        for t in range(T):
            method = "start_random_row" if (t + k) % 3 == 1 else "start_row"
            samples.agent.action[t, FIRST:-1] = actions[k][t * cage.n : (t + 1) * cage.n]
            run_groups(cage, method, t)
            found.append(cage.needs_reset.tolist())
        for path, leaf in buffer_leaves(samples):
            rows = [np.array(leaf[t]) for t in range(T + ("observation" in path))]
            found.append((path, [row.tobytes() for row in rows]))
        found += [(traj.length, traj.return_) for traj in cage.collect_completed_trajs()]
        final = sorted(cage.collect_final_observations(), key=lambda f: (f.column, f.row))
        found += [(f.row, f.column, repr(f.observation)) for f in final]
        buffer_rotate(samples.env)
    return found


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    division=divisions(),
    T=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    end=st.sampled_from(["terminated", "truncated", "both", "alternate"]),
    layout=st.sampled_from(["box", "dict", "tuple", "image"]),
    automatic=st.booleans(),
    storage=st.sampled_from(["local", "managed"]),
    wait=st.sampled_from(available_kinds()),
    spin_us=st.sampled_from([None, 0.0, 200.0]),
)
def test_samples_are_those_of_a_vectorized_cage(
    division: dict[str, Any],
    T: int,
    seed: int,
    lengths: list[int],
    end: str,
    layout: str,
    automatic: bool,
    storage: str,
    wait: str,
    spin_us: float | None,
) -> None:
    n = division.pop("n")
    factory = partial(CountingEnv, lengths, random_lengths=True, end=end, layout=layout, reuse=True)
    common = {
        "env_factories": [factory] * n,
        "seeds": [seed + i for i in range(n)],
        "reset_automatically": automatic,
    }
    decorrelation = [(seed >> i) % 5 for i in range(n)]
    found = []
    for kind, options in (
        (VectorizedCage, {}),
        (
            SynchronizedProcessCage,
            {"start_method": "fork", "timeout_s": 20.0, "wait": wait, "spin_us": spin_us}
            | division,
        ),
    ):
        samples = make_samples(factory(), T, n + 2, storage=storage)
        with kind(**common, **options) as cage:
            if not automatic:  # none may have ended, so no steps
                decorrelation = [min(count, min(lengths) - 1) for count in decorrelation]
            found.append(everything(cage, samples, T, decorrelation))
    assert found[0] == found[1]
