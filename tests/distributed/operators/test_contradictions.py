"""Workers whose reports contradict what was counted: the counts stand, and the difference is noted."""

from __future__ import annotations

import pytest
from left_records import records
from lying_worker import lying

from parllel.cli import main
from parllel.distributed.operators import Experiment

SAYS = {
    "total_reward": (
        {"episode_end": {"total_reward": 9999}},
        "its worker says total_reward 9999, counted 3",
    ),
    "step_index": ({"step 2": {"step_index": 99}}, "its worker says step_index 99, counted 2"),
    "episode_reward": (
        {"step 3": {"episode_reward": -1.5}},
        "its worker says episode_reward -1.5, counted 3",
    ),
    "terminated": (
        {"episode_end": {"terminated": False}},
        "its worker says terminated false, counted true",
    ),
    "truncated": (
        {"episode_end": {"truncated": True}},
        "its worker says truncated true, counted false",
    ),
    "seed": ({"ready": {"seed": 7}}, "its worker says seed 7, asked 42"),
}


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.few(3)
def test_what_a_worker_says_is_noted_and_what_was_counted_stands(tmp_path, name):
    lies, said = SAYS[name]
    result = Experiment("e", [lying(lies)], seeds=[42]).run(tmp_path / "runs")
    (record,) = records(result.folder, "e_liar", "episodes")
    assert (record["status"], record["total_reward"], record["episode_length"]) == ("ended", 3.0, 3)
    assert (record["terminated"], record["truncated"], record["seed"]) == (True, False, 42)
    assert record["contradictions"] == [said]
    assert result.notes == (f"liar (three): 1 of 1 episodes contradicted: {said}",)
    assert (result.failures, result.exit_status) == ((), 0)


def test_honest_workers_are_not_suspected(tmp_path):
    # As float32 has it, or with the numbers of another order of adding.
    lies = {"episode_end": {"total_reward": 3.0000001}, "ready": {"seed": None}}
    result = Experiment("e", [lying(lies)], seeds=[42, 43]).run(tmp_path / "runs")
    assert [one.get("contradictions") for one in records(result.folder, "e_liar", "episodes")] == [
        None
    ] * 2
    assert result.notes == ()


def test_a_limit_that_the_worker_does_not_know_is_no_contradiction(tmp_path):
    operator = lying({}, max_steps=2)
    result = Experiment("e", [operator], seeds=[42]).run(tmp_path / "runs")
    (record,) = records(result.folder, "e_liar", "episodes")
    assert (record["truncated"], record.get("contradictions")) == (True, None)


def test_the_command_says_it_once_for_all_episodes(tmp_path, capsys):
    operator = lying(SAYS["total_reward"][0])
    script = tmp_path / "e.py"
    script.write_text(
        "from parllel.distributed.operators import Experiment, OperatorConfig\n"
        f"operator = OperatorConfig('program', 'liar', 'three', worker={list(operator.worker)!r})\n"
        "experiment = Experiment('e', [operator], seeds=[1, 2])\n"
    )
    assert main(["operators", "run", str(script), "--dir", str(tmp_path / "runs")]) == 0
    said = "its worker says total_reward 9999, counted 3"
    assert f"liar (three): 2 of 2 episodes contradicted: {said}\n" in capsys.readouterr().err
