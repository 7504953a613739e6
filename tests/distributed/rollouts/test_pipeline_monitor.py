from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.distributed.rollouts import PipelineMonitor


def monitor_of(queue=(), **seconds):
    monitor = PipelineMonitor()
    for stage, value in seconds.items():
        monitor.add(stage, value)
    for length, capacity in queue:
        monitor.see_queue("fragments", length, capacity)
    return monitor


def test_the_largest_stage_is_the_bottleneck():
    monitor = monitor_of(receive=2.0, inference=6.0, send=0.5, hand_over=1.5)
    assert monitor.bottleneck().startswith("60% of the time goes to the policy;")
    assert monitor_of(receive=1.0).bottleneck().startswith("100% of the time goes to the environ")


def test_a_full_queue_is_the_bottleneck_whatever_takes_the_time():
    queue = [(8, 8), (7, 8), (8, 8), (8, 8)]
    monitor = monitor_of(queue, receive=9.0, hand_over=1.0)
    assert monitor.bottleneck().startswith("the queue of fragments is 97% full on average")
    monitor = monitor_of([(8, 8), (1, 8)], receive=9.0, hand_over=1.0)
    assert "environments" in monitor.bottleneck()


def test_nothing_measured():
    assert PipelineMonitor().bottleneck() == "nothing has been measured yet"
    assert PipelineMonitor().table().endswith("nothing has been measured yet")


def test_several_workers_are_added_up():
    total = PipelineMonitor()
    total.merge(monitor_of([(2, 4), (4, 4)], receive=1.0, inference=2.0))
    # As it comes from another process.
    total.merge(json.loads(json.dumps(monitor_of([(0, 4)], receive=3.0, send=0.5).state())))
    assert total.stats == {
        "receive_s": 4.0,
        "inference_s": 2.0,
        "send_s": 0.5,
        "hand_over_s": 0.0,
        "fragments_queue": 2.0,
    }
    assert total.table() == "\n".join(
        [
            "stage            seconds   share  last 60 s     calls   ms each",
            "receive              4.0   61.5%      61.5%         2  2000.000",
            "inference            2.0   30.8%      30.8%         1  2000.000",
            "send                 0.5    7.7%       7.7%         1   500.000",
            "hand_over            0.0    0.0%       0.0%         0         -",
            "queue               mean    most  last 60 s  capacity",
            "fragments            2.0       4        2.0         4",
            "62% of the time goes to the environments; run more of them at once, or in more processes",
        ]
    )


def test_the_bottleneck_is_that_of_the_moving_window():
    now = [100.0]
    monitor = PipelineMonitor(window_s=12.0, clock=lambda: now[0])
    monitor.add("receive", 9.0)
    monitor.see_queue("fragments", 8, 8)
    assert "the queue of fragments is 100% full" in monitor.bottleneck()
    now[0] += 11.0
    monitor.add("inference", 1.0)
    assert "the queue of fragments" in monitor.bottleneck()
    now[0] += 2.0  # the first measurements are 13 s old
    monitor.add("inference", 1.0)
    assert monitor.bottleneck().startswith("100% of the time goes to the policy;")
    assert monitor.state()["recent"]["seconds"]["inference"] == 2.0
    assert monitor.stats["receive_s"] == 9.0
    lines = monitor.table().split("\n")
    assert lines[1].split() == ["receive", "9.0", "81.8%", "0.0%", "1", "9000.000"]
    assert lines[-2].split() == ["fragments", "8.0", "8", "-", "8"]
    # After a pause there is nothing recent, and all time is the best that is known.
    now[0] += 1000.0
    assert "the queue of fragments" in monitor.bottleneck()
    with pytest.raises(ValueError, match="window_s: expected more than 0, got 0"):
        PipelineMonitor(window_s=0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 9)), max_size=60))
def test_a_window_holds_what_was_added_lately(gaps):
    """Compared with a list: everything of the window less one interval, and nothing older than the window."""
    now, added = [0.0], []
    monitor = PipelineMonitor(window_s=12.0, clock=lambda: now[0])
    for gap, seconds in gaps:
        now[0] += gap
        monitor.add("send", seconds)
        added.append((now[0], seconds))
    recent = monitor.state()["recent"]["seconds"]["send"]
    least = sum(seconds for when, seconds in added if now[0] - when < 11.0)
    most = sum(seconds for when, seconds in added if now[0] - when <= 12.0)
    assert least <= recent <= most


def test_a_worker_that_has_ended_is_not_recent():
    total = PipelineMonitor()
    total.merge(monitor_of([(8, 8)], receive=5.0), recent=False)
    total.merge(monitor_of(inference=1.0))
    assert total.bottleneck().startswith("100% of the time goes to the policy;")
    assert total.stats["receive_s"] == 5.0


def test_a_stage_that_raises_counts():
    monitor = PipelineMonitor()
    with pytest.raises(KeyError, match="mine"), monitor.stage("send"):
        raise KeyError("mine")
    assert monitor.state()["calls"]["send"] == 1


def test_unknown_stages_are_refused():
    with pytest.raises(ValueError, match=r"expected one of .*'receive'.*, got 'think'"):
        PipelineMonitor().add("think", 1.0)
