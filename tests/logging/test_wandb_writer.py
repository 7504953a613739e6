from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from parllel.logging import Logger, WandbWriter


class Run:
    """Remember what a run of W&B is told."""

    def __init__(self):
        self.told = []

    def log(self, row):
        self.told.append(row)

    def define_metric(self, name, **options):
        self.told.append((name, options))

    def finish(self):
        self.told.append("finish")


def test_rows_are_logged_against_environment_steps():
    run = Run()
    with Logger([WandbWriter(run)]) as logger:
        for step in (512, 1024):
            logger.log_value("algorithm/loss", step / 1024)
            logger.write(step)
        logger.rewind(512)
        logger.notice("nothing of this")
        logger.log_value("algorithm/loss", 3)
        logger.write(1024)
        logger.close()
    assert run.told == [
        ("environment_steps", {"hidden": True}),
        ("*", {"step_metric": "environment_steps"}),
        {"algorithm/loss": 0.5, "environment_steps": 512},
        {"algorithm/loss": 1.0, "environment_steps": 1024},
        {"rewound_to_step": 512, "environment_steps": 512},
        {"algorithm/loss": 3, "environment_steps": 1024},
        "finish",
    ]


@pytest.mark.parametrize("run", [None, "project"])
def test_what_is_no_run_is_refused(run):
    with pytest.raises(
        TypeError,
        match=r"WandbWriter: run: expected the run returned by wandb\.init\(\).*\[wandb\]",
    ):
        WandbWriter(run)


OFFLINE = """
import math, sys
import wandb
from parllel.logging import WandbWriter
from parllel.runs import RunFolder
from parllel_patterns import build_logger

folder = RunFolder(sys.argv[1], "run")
settings = wandb.Settings(silent=True, x_disable_stats=True)
run = wandb.init(project="tests", dir=folder.path, mode="offline", settings=settings)
with build_logger(folder, None, WandbWriter(run)) as logger:
    for step in (512, 1024):
        logger.log_value("algorithm/loss", step / 4096)
        logger.log_value("algorithm/odd", math.nan)
        logger.write(step)
    assert isinstance(logger.writers[-1], WandbWriter)  # it has not failed
"""


def test_the_real_package_takes_rows_offline(tmp_path):
    pytest.importorskip("wandb")
    private = {f"WANDB_{name}_DIR": str(tmp_path) for name in ("CONFIG", "CACHE", "DATA")}
    environment = {**os.environ, **private, "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    content = file.read_bytes()  # a log of protobuf messages, which hold values as JSON
    for part in (b"environment_steps", b"algorithm/loss", b"0.125", b"0.25", b"1024", b"NaN"):
        assert part in content
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "warning" not in log
    assert log.count("algorithm/loss") == 2
    assert math.isnan(float((tmp_path / "run" / "progress.csv").read_text().split(",")[-1]))
