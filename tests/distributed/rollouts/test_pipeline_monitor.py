from __future__ import annotations

import json

import pytest

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
            "stage            seconds   share     calls   ms each",
            "receive              4.0   61.5%         2  2000.000",
            "inference            2.0   30.8%         1  2000.000",
            "send                 0.5    7.7%         1   500.000",
            "hand_over            0.0    0.0%         0         -",
            "queue               mean    most  capacity",
            "fragments            2.0       4         4",
            "62% of the time goes to the environments; run more of them at once, or in more processes",
        ]
    )


def test_a_stage_that_raises_counts():
    monitor = PipelineMonitor()
    with pytest.raises(KeyError, match="mine"), monitor.stage("send"):
        raise KeyError("mine")
    assert monitor.state()["calls"]["send"] == 1


def test_unknown_stages_are_refused():
    with pytest.raises(ValueError, match=r"expected one of .*'receive'.*, got 'think'"):
        PipelineMonitor().add("think", 1.0)
