"""The benchmark of rollouts: its simulation, its report, and the parts that need no Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def costs():
    from benchmarks.rollouts.scaling import Costs

    return Costs(
        worker_s_per_step=50e-6,
        buffer_s_per_fragment=100e-6,
        trainer_s_per_fragment=80e-6,
        manager_s_per_report=1e-3,
        statistics_s_per_call=0.5e-3,
        idle_share=0.01,
        fragment_bytes=3000.0,
    )


def test_one_worker_is_limited_by_itself(costs):
    from benchmarks.rollouts.scaling import Cluster, simulate

    found = simulate(costs, Cluster(1, B=16))
    assert found["first_used_up"] == "workers"
    assert found["steps_per_second"] == pytest.approx(1 / 50e-6, rel=0.02)
    assert found["efficiency"] == pytest.approx(1.0, rel=0.02)


def test_many_workers_are_limited_by_the_loop_of_the_buffer(costs):
    from benchmarks.rollouts.scaling import Cluster, simulate

    found = simulate(costs, Cluster(100))
    assert found["first_used_up"] == "buffer"
    # One fragment of 64 steps in each 100 us.
    assert found["steps_per_second"] == pytest.approx(64 / 100e-6, rel=0.02)
    assert found["shares"]["buffer"] == pytest.approx(1.0, rel=0.02)
    longer = simulate(costs, Cluster(100, T=256))
    assert longer["steps_per_second"] == pytest.approx(min(256 / 100e-6, 100 / 50e-6), rel=0.1)


def test_a_slow_trainer_holds_workers_up(costs):
    from benchmarks.rollouts.scaling import Cluster, simulate

    found = simulate(replace(costs, trainer_s_per_fragment=1e-3), Cluster(100))
    assert found["first_used_up"] == "trainer"
    assert found["steps_per_second"] == pytest.approx(64 / 1e-3, rel=0.05)
    assert found["shares"]["buffer"] < 0.2


def test_the_manager_hears_of_each_worker_for_each_version(costs):
    from benchmarks.rollouts.scaling import Cluster, simulate

    slow = replace(costs, worker_s_per_step=10e-3)
    few, fifty, many = (
        simulate(slow, Cluster(n), 20.0)["shares"]["manager"] for n in (10, 50, 1000)
    )
    # And of each for each version, once a second.
    assert few == pytest.approx(0.01 + (20 + 10) * 1e-3)
    assert fifty == pytest.approx(0.01 + (100 + 50) * 1e-3)
    assert many == pytest.approx(0.01 + (100 + 1000) * 1e-3)


def test_the_table_has_a_line_for_each_number_of_workers(costs):
    from dataclasses import asdict

    from benchmarks.rollouts.scaling import COUNTS, scaling, scaling_table

    lines = scaling_table(scaling(asdict(costs)))
    assert len(lines) == 2 + 2 * len(COUNTS)
    assert [line.split(" | ")[1] for line in lines[2::4]] == ["50 us", "1,000 us"]


def test_large_fragments_fill_the_network_card(costs):
    from benchmarks.rollouts.scaling import Cluster, simulate

    large = replace(costs, fragment_bytes=2e6)
    found = simulate(large, Cluster(100, network_bytes_per_s=1.25e9))
    assert found["first_used_up"] == "network"
    assert found["megabytes_per_second"] == pytest.approx(1250, rel=0.02)
    small = simulate(costs, Cluster(100, network_bytes_per_s=1.25e9))
    assert small["first_used_up"] == "buffer"
    # 10,000 fragments of 3 kB in a second.
    assert small["shares"]["network"] == pytest.approx(10_000 * 3000 / 1.25e9, rel=0.02)


def test_the_page_compares_predictions_with_runs(costs):
    from dataclasses import asdict

    from benchmarks.rollouts.scaling import Cluster, simulate
    from benchmarks.scaling.report import markdown

    sizes = [
        {
            "name": "4 numbers",
            "T": 64,
            "costs": asdict(costs),
            "predictions": [simulate(costs, Cluster(n)) for n in (1, 100)],
        }
    ]
    checks = [{"n_workers": 4, "predicted": 4000, "measured": [3800.0, 3600.0, 3700.0]}]
    lines = markdown(
        {
            "machine": {"cores": 2, "cpu": "CPU", "python": "3.11"},
            "assumed": {"network_bytes_per_s": 1.25e9, "step_s": 1e-3},
            "sizes": sizes,
            "checks": checks,
            "not_measured": {"12 numbers": "no memory"},
        }
    ).splitlines()
    assert "a network card of 10 Gbit/s" in lines[0]
    (many,) = [line for line in lines if line.startswith("| 4 numbers | 3 kB | 100 |")]
    assert many.endswith("| buffer |")
    assert "| 4 | 4,000 | 3,700 (3,600 to 3,800) | 0.93 |" in lines
    assert "Not measured: 12 numbers: no memory" in lines


def made_up_report():
    from benchmarks.peers.driver import Measured, SceneResult
    from benchmarks.rollouts.catalogue import PROBES, SCENES
    from benchmarks.rollouts.goals import goals, probe_answer

    rates = {"parllel, local": 100.0, "parllel on Ray": 90.0, "TorchRL, RayCollector": 10.0}
    kinds = {entry.name: entry.kind for entry in SCENES[0].entries}
    sides = [
        Measured(name, kinds[name], {"n_workers": 2}, {}, {}, [], rates=[rate] * 7)
        for name, rate in rates.items()
    ]
    result = SceneResult(SCENES[0], sides)
    answers = [goal.answer(result) for goal in goals() if goal.scene == "cartpole"]
    answers.append(probe_answer(PROBES[-2], [0.3] * 7))
    answers.append(probe_answer(PROBES[-1], [], "not measured: why"))
    scene = {"name": "cartpole", "left_out": [], "sides": [vars(side) for side in sides]}
    return {
        "machine": {"cores": 2, "cpu": "CPU", "python": "CPython"},
        "settings": {"rounds": 7, "quick": False},
        "scenes": [scene],
        "answers": [answer.as_dict() for answer in answers],
        "not_measured": {},
    }


@pytest.mark.usefixtures("open_fonts")
def test_the_report_says_what_was_met(tmp_path):
    from benchmarks.rollouts.report import draw, markdown

    report = made_up_report()
    text = markdown(report)
    assert "against parllel, local | 0.9x (0.9 to 0.9) | 0.7x (0.9x) | yes, and the aim |" in text
    assert "against TorchRL, RayCollector | 9x (9 to 9) | 2x (4x) | yes, and the aim |" in text
    assert "until it is noticed | 0.3 s (0.3 to 0.3) | at most 2 s (0.5 s) | yes, and" in text
    assert "is fetched | not measured: why | at most 10 s (5 s) | - |" in text
    assert "| TorchRL, RayCollector | 0.0 |" in text
    draw(report, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_processes_are_found_with_what_they_use():
    from benchmarks.harness.machine import cpu_s, descendants, memory_bytes

    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", busy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = descendants(os.getpid())
        assert "process_time" in found[child.pid]
        assert os.getpid() in found
        assert cpu_s(child.pid) >= 0.25
        assert memory_bytes(child.pid) > 1_000_000
        child.communicate(b"\n", timeout=60)
    assert memory_bytes(child.pid) == 0
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        cpu_s(child.pid)


def test_local_workers_deliver_fragments():
    from benchmarks.peers.workload import Workload
    from benchmarks.rollouts.sides.parllel_side import ParllelSide

    settings = {"where": "threads", "n_workers": 2, "policy": "torch", "queue": 3, "capacity": 2}
    side = ParllelSide(Workload("CartPole-v1", B=4, T=8), settings)
    try:
        assert side.first()["steps"] == 4 * 8
        assert side.run() == 4 * 8
        producers = set()
        until = time.monotonic() + 60
        while len(producers) < 2 and time.monotonic() < until:
            producers |= {fragment.producer for fragment in side.fetch()}
        assert producers == {"worker 0", "worker 1"}
    finally:
        side.close()


def test_names_that_fit_nothing_are_refused(capsys):
    from benchmarks.rollouts.__main__ import COMMAND

    with pytest.raises(SystemExit):
        COMMAND.parse(["--only", "pong"])
    assert (
        "--only: expected some of cartpole, halfcheetah, 84x84x4, 128x128x3, weights"
        in capsys.readouterr().err
    )


def state_of(server):
    """Return the state of its process: "T" is halted."""
    return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_side_that_is_not_to_be_halted_goes_on():
    from benchmarks.peers.client import SideProcess

    halting, going = SideProcess("halts"), SideProcess("goes on", halts=False)
    try:
        for server in (halting, going):
            server.stop()
        until = time.monotonic() + 60
        while state_of(halting) != "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert (state_of(halting), state_of(going) == "T") == ("T", False)
    finally:
        halting.close()
        going.close()
