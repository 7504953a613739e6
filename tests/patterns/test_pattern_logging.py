from __future__ import annotations

import io
import json
import os
import sys

import pytest
from rich.console import Console

from parllel.runs import RunFolder
from parllel_patterns import build_logger


def test_rows_go_to_all_files_of_the_folder_and_to_the_console(tmp_path):
    folder = RunFolder(tmp_path, "run")
    stream = io.StringIO()
    with build_logger(folder, Console(file=stream, width=60)) as logger:
        logger.log_value("loss", 0.5)
        logger.write(10)
    assert (folder.path / "progress.csv").read_text() == "step,loss\n10,0.5\n"
    assert json.loads((folder.path / "progress.jsonl").read_text()) == {"step": 10, "loss": 0.5}
    assert "loss  0.5" in (folder.path / "log.txt").read_text()
    assert len(list(folder.path.glob("events.out.tfevents.*"))) == 1
    assert "loss" in stream.getvalue()


def test_without_a_console_nothing_is_printed(tmp_path, capsys):
    with build_logger(RunFolder(tmp_path, "run")) as logger:
        logger.log_value("loss", 0.5)
        logger.write(10)
        logger.notice("done")
    assert capsys.readouterr() == ("", "")


def test_tensorboard_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    folder = RunFolder(tmp_path, "run")
    with build_logger(folder) as logger:
        logger.log_value("loss", 0.5)
        logger.write(10)
    assert (folder.path / "progress.csv").read_text() == "step,loss\n10,0.5\n"
    said = (folder.path / "log.txt").read_text()
    assert "notice: no events for TensorBoard" in said
    assert "pip install '.[tensorboard]' in a checkout of parllel" in said
    assert not list(folder.path.glob("events.out.tfevents.*"))


def test_what_cannot_be_written_to_leaves_no_file_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(TypeError, match="got a StringIO, which does not inherit from"):
        build_logger(RunFolder(tmp_path, "run"), None, io.StringIO())
    folder = RunFolder(tmp_path, "other")
    (folder.path / "progress.jsonl").mkdir()
    with pytest.raises(OSError, match=r"progress\.jsonl"):
        build_logger(folder)
    assert os.listdir("/proc/self/fd") == before


def test_a_path_is_no_folder_of_a_run(tmp_path):
    with pytest.raises(
        TypeError, match=r"^build_logger: folder: expected a RunFolder, got '.*; CsvW"
    ):
        build_logger(str(tmp_path))
