from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = """
import numpy as np
from parllel.buffers import Field
from parllel.testing.transform_contract import BatchTransformContract
from parllel.transforms import BatchTransform


class WritesNothing(BatchTransform):
    def fields(self, samples):
        return {"env.number": Field(np.float32(0))}

    def transform_batch(self, samples):
        pass


class TestWritesNothing(BatchTransformContract):
    def make_transform(self):
        return WritesNothing()
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), ["Right contains one more item: 'env.number'"]),
        (("--assert=plain",), []),  # asked for, and no error
    ],
)
@pytest.mark.few(1)
def test_a_project_without_a_conftest_sees_the_values_of_failed_assertions(tmp_path, flags, said):
    (tmp_path / "test_numbers.py").write_text(PROJECT)
    name = "test_it_writes_what_it_declares_and_nothing_else"
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", name, *flags],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    shown = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E  ")]
    assert [line for line in shown if "more item" in line] == said


def test_without_pytest_nothing_is_imported_for_it():
    code = "import sys, parllel.testing.dummy_envs; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
