from __future__ import annotations

import os
from pathlib import Path

import pytest
from python_code import output_of

from parllel.system.processes import cores
from parllel.system.processes.cores import (
    affinity_cores,
    available_cores,
    cgroup_quotas,
    free_cores,
    usable_cores,
)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")).write_text(text)


def test_usable_cores_are_some() -> None:
    assert 1 <= usable_cores() <= affinity_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_the_affinity_mask_counts() -> None:
    code = (
        "import os; from parllel.system.processes.cores import usable_cores;"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(usable_cores())"
    )
    assert output_of(code).strip() == "1"


def test_a_part_of_a_core_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for quotas, expected in (([0.3], 1), ([2.9, 64.0], 2), ([], 8), ([100.0], 8)):
        monkeypatch.setattr(
            "parllel.system.processes.cores.cgroup_quotas", lambda found=quotas: found
        )
        monkeypatch.setattr("parllel.system.processes.cores.affinity_cores", lambda: 8)
        assert usable_cores() == expected


def test_quotas_of_all_groups_above_a_process(tmp_path: Path) -> None:
    write(tmp_path, cpu_max="max 100000\n")
    write(tmp_path / "job", cpu_max="400000 100000\n")
    write(tmp_path / "job" / "mine", cpu_max="150000 100000\n")
    write(tmp_path / "job" / "other", cpu_max="10000 100000\n")
    process = tmp_path / "process"
    process.write_text("0::/job/mine\n")
    assert sorted(cgroup_quotas(tmp_path, process)) == [1.5, 4.0]


def test_quotas_of_version_1(tmp_path: Path) -> None:
    period = {"cpu_cfs_period_us": "100000\n"}
    write(tmp_path / "cpu", cpu_cfs_quota_us="-1\n", **period)
    write(tmp_path / "cpu" / "box", cpu_cfs_quota_us="250000\n", **period)
    process = tmp_path / "process"
    process.write_text("4:cpu,cpuacct:/box\n1:name=systemd:/elsewhere\n")
    assert cgroup_quotas(tmp_path, process) == [2.5]


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_quotas(tmp_path / "none", tmp_path / "nothing") == []
    write(tmp_path, cpu_max="what is this\n")
    assert cgroup_quotas(tmp_path, tmp_path / "nothing") == []


def test_threads_get_no_more_than_the_cores_that_are_there() -> None:
    for n in (1, 2, 3):
        assert 0 < free_cores(n, 0.02) <= min(n, affinity_cores()) + 0.1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_threads_on_one_core_get_one_core() -> None:
    code = (
        "import os; from parllel.system.processes.cores import free_cores;"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(free_cores(3, 0.1))"
    )
    assert float(output_of(code)) <= 1.1


@pytest.mark.parametrize(
    ("n", "usable", "free", "expected"),
    [
        (16, 4, 4.0, 4),
        (16, 4, 3.7, 4),  # little else runs
        (16, 2, 1.6, 1),  # a worker would be stopped for a third of the time
        (3, 8, 2.9, 3),  # no more than processes
        (2, 2, 0.5, 1),
    ],
)
def test_cores_that_others_keep_busy_do_not_count(
    monkeypatch: pytest.MonkeyPatch, n: int, usable: int, free: float, expected: int
) -> None:
    asked = []
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.setattr(cores, "free_cores", lambda n: (asked.append(n), free)[1])
    assert available_cores(n) == expected
    assert asked == [min(n, usable)]


@pytest.mark.parametrize(("n", "usable"), [(1, 8), (16, 1)])
def test_nothing_is_measured_for_one_process(
    monkeypatch: pytest.MonkeyPatch, n: int, usable: int
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.delattr(cores, "free_cores")
    assert available_cores(n) == 1
