from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.fixture
def busy_core() -> Iterator[int]:
    """Keep one core busy by another process, and return it."""
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield core
        process.kill()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_a_core_that_another_program_keeps_busy_is_not_free(busy_core: int) -> None:
    before = os.sched_getaffinity(0)
    code = (
        "import os; from parllel.system.processes.cores import free_cores;"
        f"os.sched_setaffinity(0, [{busy_core}]); print(free_cores(0.2))"
    )
    assert output_of(code).strip() == "0"
    assert 0 <= free_cores() < len(before)
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("n", "usable", "free", "expected"),
    [
        (16, 4, 4, 4),
        (16, 4, 3, 3),
        (3, 8, 7, 3),  # no more than processes
        (2, 2, 0, 1),
    ],
)
def test_cores_that_others_keep_busy_do_not_count(
    monkeypatch: pytest.MonkeyPatch, n: int, usable: int, free: int, expected: int
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.setattr(cores, "affinity_cores", lambda: usable)
    monkeypatch.setattr(cores, "free_cores", lambda: free)
    assert available_cores(n) == expected


@pytest.mark.parametrize(
    ("n", "usable", "affinity", "expected"),
    [
        (1, 8, 8, 1),
        (16, 1, 8, 1),
        (16, 4, 8, 4),  # a quota
    ],
)
def test_nothing_is_measured_for_one_process_or_under_a_quota(
    monkeypatch: pytest.MonkeyPatch, n: int, usable: int, affinity: int, expected: int
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.setattr(cores, "affinity_cores", lambda: affinity)
    monkeypatch.delattr(cores, "free_cores")
    assert available_cores(n) == expected
