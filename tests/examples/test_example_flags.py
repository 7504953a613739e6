"""What `--help` of the examples says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from parllel.runs.config import key_paths
from parllel_patterns import tuned
from parllel_patterns.flags import parse_flags

EXAMPLES = Path(__file__).parents[2] / "examples"
ALGORITHMS = ("ppo", "sac", "dqn", "r2d1")
PATHS = sorted(path for name in ALGORITHMS for path in EXAMPLES.glob(f"*/train_{name}.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_flag_has_a_help_text(path, capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location(f"example_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    check_help(module.Config, None, capsys)


@pytest.mark.parametrize("name", ["cartpole-ppo", "cartpole-dqn", "pendulum-sac"])
def test_every_flag_of_tuned_settings_has_a_help_text(name, capsys):
    check_help(type(tuned(name)), tuned(name), capsys)


def check_help(config_class, before, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        parse_flags(config_class, "runs", ["--help"], before, "about")
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    flags = [key.replace("_", "-") for key in key_paths(config_class) if key not in ALGORITHMS]
    for flag in flags:
        shown = re.search(rf" --{re.escape(flag)}[ ,](.*?)\(default: ", said)
        # Behind its kind or the choices, and for a switch its opposite.
        text = re.sub(r"^(--no-\S+|\[[^a-z]*\]|\{[^}]*\}(\|[A-Z]+)?|[A-Z]+) ", "", shown[1])
        assert len(text.split()) > 1, f"--{flag}: {shown[0]!r}"
