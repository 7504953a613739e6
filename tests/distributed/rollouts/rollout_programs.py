"""Programs of what may happen to rollout workers, and whether a plain model agrees with what does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from modelled_pipeline import Pipeline
from watched_parts import WatchedBuffer
from worker_plan import Plan

STALENESS = st.sampled_from([None, 0, 1, 3])
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
# After how many steps, what, and a number that chooses from what there is.
EVENTS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 11), st.integers(0, 3)), min_size=3, max_size=12
)
WORKER = st.integers(0, 2)
RUN = st.tuples(st.just("run"), WORKER, st.integers(5, 40), EVENTS)
FETCH = st.tuples(st.just("fetch"), st.integers(1, 5), st.sampled_from([None, None, -1, 0, 1]))
OTHERS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 2)),
    st.tuples(st.just("load"), WORKER, st.integers(-2, 2)),
    st.tuples(st.just("announce"), st.integers(-1, 2)),
    st.tuples(st.just("disturb"), WORKER, st.sampled_from(["slow", "forget"]), st.integers(1, 3)),
    st.tuples(st.just("add_again"), st.integers(0, 99)),
)
ENDS = st.one_of(
    st.tuples(st.just("finish"), st.sampled_from(["worker", "sender", "buffer"]), WORKER),
    st.tuples(st.just("finish_in_a_run"), st.sampled_from(["handler", "sender", "buffer"]), WORKER),
    st.tuples(st.just("disturb"), WORKER, st.just("fail"), st.just(1)),
)
# Much happens before anything ends.
PROGRAMS = st.tuples(
    st.lists(st.one_of(RUN, RUN, FETCH, OTHERS), min_size=6, max_size=12),
    st.lists(st.one_of(RUN, RUN, FETCH, OTHERS, ENDS), max_size=12),
).map(lambda parts: [*parts[0], *parts[1]])
BUFFERS = st.fixed_dictionaries(
    {
        "capacity": st.integers(1, 8),
        "max_reuse": st.integers(1, 3),
        "order": st.sampled_from(["oldest", "newest", "random"]),
        "max_staleness": STALENESS,
    }
)
# What environments may do; those in cages of their own all die in one way.
FAULTS = {
    "fake": ("step", "start", "reset", "make", "step", "hang"),
    "real": ("kill", "kill", "hang"),
}
KINDS = [
    ("rows", "together"),
    ("rows", "plain"),
    ("ready", "together"),
    ("ready", "plain"),
    ("ready", "fake"),
]


@st.composite
def plans(draw, kind, places, recurrent, *, most=4):
    n = draw(st.integers(1, most))
    return Plan(
        kind,
        places,
        recurrent,
        tuple(draw(st.lists(LENGTHS, min_size=n, max_size=n))),
        length=draw(st.integers(1, 5)),
        T=draw(st.integers(1, 5)),
        batch_size=draw(st.integers(1, n)),
        max_wait_s=draw(st.sampled_from([0.0, 600.0])),
        waits=tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))),
        restarts=draw(st.integers(0, 6)),
        capacity=draw(st.integers(1, 4)),
        max_staleness=draw(STALENESS),
    )


def follow(plans, buffer, program, faults, eager):
    """Let everything happen, and compare with the model after each event."""
    pipeline = Pipeline(plans, faults, WatchedBuffer(**buffer, seed=3), eager=eager)
    try:
        for what, *how in program:
            getattr(pipeline, what)(*how)
            pipeline.check()
        pipeline.finish_all()
    finally:
        pipeline.end()


def short_waits(monkeypatch):
    """Let all look more often at what has changed: the trainer acts only when nothing else does."""
    monkeypatch.setattr("parllel.distributed.rollouts.ReplayBufferInterface.add_wait_s", 0.01)
    for module in ("rollout_worker", "asynchronous_schedule"):
        monkeypatch.setattr(f"parllel.distributed.rollouts.{module}._SLICE_S", 0.01)


def check_programs(kind, places, recurrent, n, *, workers=3, environments=4):
    """Follow `n` programs with up to so many workers and environments.

    Raises:
        AssertionError: with the shortest program that was found, if the model does not agree.
    """
    faults = FAULTS.get(places, ("step",))
    those = plans(kind, places, recurrent, most=environments)

    @given(st.lists(those, min_size=1, max_size=workers), BUFFERS, PROGRAMS, st.booleans())
    @settings(max_examples=n)
    def agree(plans, buffer, program, eager):
        follow(plans, buffer, program, faults, eager)

    agree()
