from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.distributed.messaging.kafka.run_topics import run_topics, runs_of

NAMES = st.text("ab.-_", min_size=1, max_size=6)


@given(st.sets(NAMES))
def test_runs_are_found_again_by_their_topics(runs):
    topics = [topic for run in runs for topic in run_topics(run).values()]
    assert len(set(topics)) == len(topics)
    others = ["parllel", "parllel..action", "parllel.x.state", "x.parllel.a.action"]
    found = runs_of([*topics, *others])
    assert found == {run: ["action", "broadcast", "info"] for run in runs}


@pytest.mark.parametrize("run", ["", "a b", "ä", "a/b", "x" * 232])
def test_names_that_no_topic_can_have_are_refused(run):
    with pytest.raises(ValueError, match=r"run: expected 1 to 231 letters"):
        run_topics(run)


def test_the_longest_name_has_the_length_that_brokers_allow():
    assert max(map(len, run_topics("x" * 231).values())) == 249
