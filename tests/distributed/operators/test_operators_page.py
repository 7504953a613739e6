"""The shell lines and the TOML of docs/operators.md run as a reader would run them, in one folder."""

from __future__ import annotations

import json
import re

from shell_pages import ROOT, blocks_of, run_lines

PAGE = (ROOT / "docs" / "operators.md").read_text()


def section(heading):
    """Return the page from a heading to the next."""
    return re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.M)[0]


def test_an_experiment_of_the_page_is_played_by_the_command(tmp_path):
    (script,) = blocks_of(section("Experiments"), "python")
    (tmp_path / "baselines.py").write_text(script)
    (lines,) = blocks_of(section("Experiments"), "sh")
    said = run_lines(lines, tmp_path)
    table, _, results = said.partition("\n[")
    assert "noop - random" in table
    (group,) = json.loads(f"[{results}")
    assert [one["operator_id"] for one in group["operators"]] == ["random", "noop"]
    assert [one["ended"] for one in group["operators"]] == [20, 20]


def test_the_same_in_toml_is_played(tmp_path):
    (text,) = blocks_of(section("In TOML"), "toml")
    (tmp_path / "baselines.toml").write_text(text)
    said = run_lines("parllel operators run baselines.toml --set episodes=3", tmp_path)
    assert re.search(r"^random +3/3 +0 ", said, re.M)
    config = json.loads((tmp_path / "runs" / "baselines" / "config.json").read_text())
    assert (config["episodes"], config["success"]) == (3, 100.0)
