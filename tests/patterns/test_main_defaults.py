"""Scripts whose flags change a given config instead of the defaults of its class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parllel_patterns import main_for_each

sys.path.insert(0, str(Path(__file__).parent.parent / "runners"))
from small_run import Config, Rates, build

pytestmark = pytest.mark.usefixtures("open_fonts")
GIVEN = Config(n_steps=20, rates=Rates(0.25))


def run(tmp_path, *argv, defaults=GIVEN):
    """Train one run and return the config that its folder holds."""
    given = {"base": str(tmp_path), "name": "run", "argv": argv, "defaults": defaults}
    ((result, folder),) = main_for_each(build, Config, {"--seeds": "--seed"}, **given)
    config = folder.read_record().read_config()
    assert result.elapsed_steps == config.n_steps
    return config


def test_flags_change_the_given_config(tmp_path):
    assert run(tmp_path) == GIVEN
    changed = Config(seed=3, n_steps=40, rates=Rates(0.25))
    assert run(tmp_path, "--seeds", "3", "--n-steps", "40") == changed


def test_a_resumed_run_keeps_its_own_config(tmp_path):
    run(tmp_path, "--rates.learning-rate", "0.5", "--seed", "4")
    again = run(tmp_path, "--resume", str(tmp_path / "run"), "--n-steps", "40")
    assert again == Config(seed=4, n_steps=40, rates=Rates(0.5))


def test_a_config_of_another_class_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"main: defaults: expected a Config, got Rates\("):
        run(tmp_path, defaults=Rates())
