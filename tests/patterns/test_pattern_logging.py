from __future__ import annotations

import io
import json
import sys

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
