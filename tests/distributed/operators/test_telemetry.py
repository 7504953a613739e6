"""Files of steps and episodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from parllel.distributed.operators.experiments.telemetry import (
    Telemetry,
    read_telemetry,
    telemetry_path,
)


def test_records_are_written_as_they_are(tmp_path):
    with Telemetry(tmp_path / "new", "a-1") as telemetry:
        telemetry.step({"step": 1, "action": np.int64(2), "raw": "é\n", "seen": np.arange(2)})
        line = telemetry.episode({"status": "ended", "total_reward": np.float32(0.5), "time": 1.0})
    steps, episodes = (telemetry_path(tmp_path / "new", "a-1", k) for k in ("steps", "episodes"))
    assert (steps.name, episodes.name) == ("a-1_steps.jsonl", "a-1_episodes.jsonl")
    (step,) = read_telemetry(steps)
    assert list(step) == ["run_id", "step", "action", "raw", "seen", "time"]
    assert [step[name] for name in ("run_id", "action", "raw", "seen")] == ["a-1", 2, "é\n", [0, 1]]
    assert episodes.read_bytes() == line
    assert json.loads(line) == {
        "run_id": "a-1",
        "status": "ended",
        "total_reward": 0.5,
        "time": 1.0,
    }


def test_what_was_written_outlives_a_kill(tmp_path):
    program = textwrap.dedent(
        f"""
        import os, signal
        from parllel.distributed.operators.experiments.telemetry import Telemetry
        telemetry = Telemetry({str(tmp_path)!r}, "a")
        for step in range(1000):
            telemetry.step({{"step": step}})
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=50, check=False)
    assert done.returncode == -signal.SIGKILL
    path = telemetry_path(tmp_path, "a", "steps")
    assert [record["step"] for record in read_telemetry(path)] == list(range(1000))
    with path.open("ab") as file:
        file.write(b'{"step": 10')
    assert len(list(read_telemetry(path))) == 1000
    with path.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(ValueError, match=r"a_steps\.jsonl: line 1001: not a record"):
        list(read_telemetry(path))


def test_refusals(tmp_path):
    for name in ("", "a/b", "a b", 3):
        with pytest.raises(ValueError, match="run_id: expected 1 to 200 letters"):
            Telemetry(tmp_path, name)
    first = Telemetry(tmp_path, "a")
    before = len(os.listdir("/proc/self/fd"))
    os.remove(telemetry_path(tmp_path, "a", "steps"))
    with pytest.raises(
        FileExistsError, match=r"a_episodes\.jsonl: telemetry of this run already exists"
    ):
        Telemetry(tmp_path, "a")
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(TypeError, match="telemetry: expected JSON values, got <object"):
        first.step({"raw": object()})
    first.close()
    first.close()
    with pytest.raises(OSError, match="telemetry of a: written to after close"):
        first.step({})
