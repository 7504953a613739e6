from __future__ import annotations

import os
from pathlib import Path

import pytest
from python_code import output_of

from parllel.system.processes.cores import affinity_cores, cgroup_quotas, usable_cores


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
    for quotas, cores in (([0.3], 1), ([2.9, 64.0], 2), ([], 8), ([100.0], 8)):
        monkeypatch.setattr(
            "parllel.system.processes.cores.cgroup_quotas", lambda found=quotas: found
        )
        monkeypatch.setattr("parllel.system.processes.cores.affinity_cores", lambda: 8)
        assert usable_cores() == cores


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
