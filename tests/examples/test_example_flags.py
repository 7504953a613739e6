"""What `--help` of the examples says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from parllel.runs.config import key_paths
from parllel_patterns.flags import parse_flags

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/train_ppo.py"))


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_has_a_help_text(name, capsys, monkeypatch):
    path = EXAMPLES / name / "train_ppo.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    with pytest.raises(SystemExit, match=r"^0$"):
        parse_flags(module.Config, "runs", ["--help"], None, "about")
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    flags = [key.replace("_", "-") for key in key_paths(module.Config) if key != "ppo"]
    for flag in flags:
        shown = re.search(rf" --{re.escape(flag)}[ ,](.*?)\(default: ", said)
        # Behind its kind or the choices, and for a switch its opposite.
        text = re.sub(r"^(--no-\S+|\[[^a-z]*\]|\{[^}]*\}(\|[A-Z]+)?|[A-Z]+) ", "", shown[1])
        assert len(text.split()) > 1, f"--{flag}: {shown[0]!r}"
