"""Experiments with real workers: what they play, what they leave, and how they fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import pytest
from left_records import records, without_times

from parllel.cli import main
from parllel.distributed.operators import (
    Experiment,
    FixedSeeds,
    OperatorConfig,
    ProceduralSeeds,
    read_telemetry,
)
from parllel.distributed.operators.experiments.telemetry import TIMES
from parllel.policies import play_episodes, policy_of
from parllel.system.processes.process_table import command_of, descendants, process_runs

FRAIL = Path(__file__).with_name("frail_worker.py")
RANDOM = OperatorConfig("baseline", "random", "CartPole-v1", policy="random")
NOOP = OperatorConfig("baseline", "noop", "CartPole-v1", policy="noop")


def frail(operator_id, *words):
    """Return an operator whose worker fails as the words say."""
    worker = [sys.executable, str(FRAIL), *words]
    return OperatorConfig("program", operator_id, "five", worker=worker)


@pytest.mark.parametrize("mode", ["free", "lockstep"])
def test_random_plays_the_episodes_that_it_plays_in_process(tmp_path, mode):
    seeds = [5, 6, 2**40]
    result = Experiment("same", [RANDOM, NOOP], seeds=seeds, mode=mode).run(tmp_path)
    make_env = partial(gym.make, "CartPole-v1")
    with make_env() as env, policy_of("random", env.observation_space, env.action_space) as policy:
        expected = play_episodes(policy, make_env, seeds, keep_actions=True)
    episodes = records(result.folder, "same_random", "episodes")
    found = [(e["seed"], e["total_reward"], e["episode_length"]) for e in episodes]
    assert found == [(e.seed, e.traj.return_, e.traj.length) for e in expected]
    steps = records(result.folder, "same_random", "steps")
    for number, episode in enumerate(expected):
        own = [step for step in steps if step["episode"] == number]
        assert [step["executed"] for step in own] == list(episode.actions)
        assert [step["step"] for step in own] == list(range(1, episode.traj.length + 1))
    (group,) = result.groups
    assert [one.ended for one in group.operators] == [3, 3]
    assert (result.exit_status, result.failures, result.stopped_by) == (0, (), None)


def test_fixed_seeds_begin_alike_and_let_agents_draw_anew(tmp_path):
    result = Experiment("fixed", [RANDOM, NOOP], seeds=FixedSeeds(3), episodes=6).run(tmp_path)
    noop = records(result.folder, "fixed_noop", "episodes")
    assert {episode["seed"] for episode in noop} == {3}
    assert len({episode["agent_seed"] for episode in noop}) == 6
    # What draws nothing plays the same episode six times.
    assert len({episode["total_reward"] for episode in noop}) == 1
    steps = records(result.folder, "fixed_random", "steps")
    played = {
        tuple(step["action"] for step in steps if step["episode"] == episode)
        for episode in range(6)
    }
    assert len(played) == 6


def test_in_lockstep_no_operator_is_a_step_ahead(tmp_path):
    slow, quick = frail("slow", "slow=0.05"), frail("quick")
    result = Experiment("step", [slow, quick], seeds=[1, 2], mode="lockstep").run(tmp_path)
    steps = [
        step
        for name in ("slow", "quick")
        for step in records(result.folder, f"step_{name}", "steps")
    ]
    steps.sort(key=lambda step: step["time"])
    # Two of each: the quick one is asked again only when the slow one has answered.
    places = [(step["episode"], step["step"]) for step in steps]
    assert places == [(episode, i) for episode in (0, 1) for i in range(1, 6) for _ in range(2)]
    assert [one.operator_id for one in result.groups[0].operators] == ["slow", "quick"]


def content_of(path):
    """Return what a file of an experiment holds but for times, and for the interpreter's arguments."""
    left_out = (*TIMES, "created", "ended", "command")
    if path.suffix == ".json":
        return without_times(json.loads(path.read_text()), left_out)
    if path.suffix == ".jsonl":
        return without_times(list(read_telemetry(path)), left_out)
    return path.read_bytes()


def test_twice_leaves_the_same_files(tmp_path):
    def play(base):
        operators = [RANDOM, NOOP, frail("die", "die=1"), frail("hang", "hang=2")]
        experiment = Experiment("twice", operators, seeds=range(3), step_timeout_s=5, video=1)
        result = experiment.run(base)
        folder = result.folder
        assert sorted(result.notes) == [
            f"no video of {name}: its worker sends no frames" for name in ("die", "hang")
        ]
        files = {
            str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()
        }
        del files["lock"]  # the number of the process
        return {name: content_of(path) for name, path in files.items()}

    first, second = play(tmp_path / "a"), play(tmp_path / "b")
    assert {"results.json", "results.png", "videos/CartPole-v1-episode-0.mp4"} <= first.keys()
    assert len([name for name in first if name.startswith("telemetry/")]) == 8
    assert first == second


def test_failures_are_recorded_and_the_rest_is_played(tmp_path):
    operators = [
        frail("good"),
        frail("dies", "die=2"),
        frail("hangs", "hang=1"),
        frail("errs", "error=3"),
        frail("never", "never"),
    ]
    experiment = Experiment(
        "fail", operators, seeds=[1, 2, 3], step_timeout_s=3, restarts=1, success=10
    )
    result = experiment.run(tmp_path)
    (group,) = result.groups
    counts = {one.operator_id: (one.ended, one.failed) for one in group.operators}
    # The last one is given up when its one restart is used up.
    expected = {"good": (3, 0), "dies": (2, 1), "hangs": (2, 1), "errs": (2, 1), "never": (0, 2)}
    assert counts == expected
    assert result.exit_status == 1
    said = "\n".join(result.failures)
    assert "dies (five): 1 of 3 episodes failed: operator 'dies' (five): its process exited" in said
    assert "errs (five): 1 of 3 episodes failed: frail: no idea" in said
    assert "within 3 s" in said
    assert "never (five): 2 of 3 episodes failed, and 1 not played" in said
    assert "frail: never starts" in said
    episodes = records(result.folder, "fail_dies", "episodes")
    summary = [(e["status"], e["episode_length"], e["restarts"], e["success"]) for e in episodes]
    assert summary == [("ended", 5, 0, False), ("failed", 2, 0, None), ("ended", 5, 1, True)]
    first = group.differences[0]
    assert (first.operator_id, first.against) == ("dies", "good")
    assert (first.total_reward.n, first.failed, first.unpaired) == (2, 1, 0)
    assert group.sentences == [
        *(
            f"{name}: 1 of 3 episodes failed and is not in its means"
            for name in ("dies", "hangs", "errs")
        ),
        "never: 2 of 2 episodes failed and are not in its means",
        *(
            f"no clear difference between {name} and good: 0 over 2 pairs, too few: at least 7 are needed, "
            "corrected for 3 comparisons; 1 pair is left out, as an episode failed"
            for name in ("dies", "hangs", "errs")
        ),
        "no clear difference between never and good: no pairs of episodes; "
        "2 pairs are left out, as an episode failed; 1 episode has no pair",
    ]
    run = json.loads((result.folder / "run.json").read_text())
    assert (run["kind"], run["outcome"]["episodes"], run["outcome"]["failed"]) == (
        "experiment",
        9,
        5,
    )


@pytest.mark.parametrize("mode", ["free", "lockstep"])
@pytest.mark.few(1)
def test_what_workers_say_wrongly_fails_one_episode_alone(tmp_path, mode):
    wrong = {
        "print": "wrote a line that is not a reply",
        "endless": "within 3 s",
        "miscount": "expected an episode_end with episode_length 5, got 4",
        "huge": "its total reward is not a finite number",
    }
    operators = [frail(word, f"{word}=2") for word in wrong]
    experiment = Experiment("wrong", operators, seeds=[1, 2, 3], step_timeout_s=3, mode=mode)
    result = experiment.run(tmp_path)
    for one in result.groups[0].operators:
        assert (one.ended, one.failed, one.total_reward.mean) == (2, 1, 10.0)
        assert wrong[one.operator_id] in one.failures[0]


@pytest.mark.parametrize("mode", ["free", "lockstep"])
def test_a_limit_of_steps_cuts_episodes_of_any_worker(tmp_path, mode):
    config = OperatorConfig(
        "program", "cut", "five", worker=[sys.executable, str(FRAIL)], max_steps=2
    )
    result = Experiment("cut", [config], seeds=[1, 1], mode=mode).run(tmp_path)
    episodes = records(result.folder, "cut_cut", "episodes")
    assert [(e["episode_length"], e["truncated"], e["status"]) for e in episodes] == [
        (2, True, "ended")
    ] * 2


def test_seeds_do_not_depend_on_how_many_there_are():
    few, many = ProceduralSeeds(7).seeds(3), ProceduralSeeds(7).seeds(100_000)
    assert few == many[:3]
    assert few != ProceduralSeeds(8).seeds(3)
    assert len(set(many)) > 99_990
    assert all(0 <= seed < 2**32 for seed in many)


SCRIPT = """
import sys
from parllel.cli import main
from parllel.distributed.operators import Experiment, FixedSeeds, OperatorConfig

def frail(operator_id, *words):
    worker = [sys.executable, {frail!r}, *words]
    return OperatorConfig("program", operator_id, "five", worker=worker)

experiment = Experiment(
    "long",
    [frail("quick"), frail("slow", "slow=0.2"), frail("hangs", "hang=1", "stubborn")],
    seeds=FixedSeeds(1), episodes=100000, step_timeout_s=100, pace_s=0.01,
)
"""


@pytest.fixture
def long(tmp_path):
    """An experiment of 100,000 episodes, in a process of its own, of which some were played."""
    script = tmp_path / "long.py"
    script.write_text(SCRIPT.format(frail=str(FRAIL)))
    command = [sys.executable, "-m", "parllel", "operators", "run", str(script)]
    with subprocess.Popen(
        [*command, "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        episodes = tmp_path / "long" / "telemetry" / "long_quick_episodes.jsonl"
        end = time.monotonic() + 40
        while not (episodes.exists() and len(list(read_telemetry(episodes))) > 5):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        yield process
        process.kill()


def workers_of(process):
    """Return the ids of the workers below a process."""
    found = [entry.pid for entry in descendants(process.pid)]
    return [pid for pid in found if FRAIL.name in command_of(pid)]


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
@pytest.mark.few(1)
def test_a_signal_keeps_what_was_played(long, tmp_path, signal_name):
    workers = workers_of(long)
    assert len(workers) == 3
    long.send_signal(getattr(signal, signal_name))
    output, errors = long.communicate(timeout=40)
    assert long.returncode == 128 + getattr(signal, signal_name)
    folder = tmp_path / "long"
    (said,) = errors.splitlines()
    assert said.startswith(f"{signal_name}: stopped; played: quick ")
    assert said.endswith(f" of 100000 episodes, in {folder}; to continue, use --resume {folder}")
    assert "quick" in output
    assert not [pid for pid in workers if process_runs(pid)]
    assert json.loads((folder / "run.json").read_text())["outcome"]["stopped_by"] == signal_name
    (group,) = json.loads((folder / "results.json").read_text())["results"]
    quick, slow, hangs = group["operators"]
    assert quick["ended"] > 5
    assert (quick["failed"], slow["failed"], hangs["failed"], hangs["ended"]) == (0, 0, 0, 0)


def test_a_kill_leaves_results_and_no_workers(long, tmp_path, capsys):
    workers = workers_of(long)
    telemetry = tmp_path / "long" / "telemetry"
    steps = len(list(read_telemetry(telemetry / "long_quick_steps.jsonl")))
    long.kill()
    long.wait(20)
    end = time.monotonic() + 20
    while [pid for pid in workers if process_runs(pid)]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(list(read_telemetry(telemetry / "long_quick_steps.jsonl"))) >= steps
    assert main(["operators", "results", "--json", str(tmp_path / "long")]) == 0
    (group,) = json.loads(capsys.readouterr().out)
    assert group["operators"][0]["ended"] > 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operators": []}, "operators: expected at least one, got none"),
        ({"operators": [RANDOM, RANDOM]}, "operators: several have the operator_id 'random'"),
        (
            {"operators": ["random"]},
            "operators: expected OperatorConfigs and MultiAgentConfigs, got",
        ),
        ({"name": "a b"}, "name: expected 1 to 60 letters"),
        ({"seeds": []}, "seeds: expected at least one, got none"),
        ({"seeds": [1, -1]}, "seeds: expected an int of at least 0, got -1"),
        ({"seeds": 3}, "episodes: expected a number, because seeds is not a list"),
        ({"episodes": 3}, "episodes: expected at most 2, the number of seeds, got 3"),
        ({"mode": "fast"}, "mode: expected free or lockstep, got 'fast'"),
        ({"pace_s": -1}, "pace_s: expected a number of at least 0, got -1"),
        ({"step_timeout_s": 0}, r"step_timeout_s: expected a number of at least 0\.001, got 0"),
        ({"restarts": True}, "restarts: expected an int of at least 0, got True"),
        ({"success": {"CartPole-v1": "much"}}, "success: expected a number of at least -inf"),
        ({"comparisons": "all"}, "comparisons: expected first or pairs, got 'all'"),
    ],
    ids=str,
)
def test_refusals(change, said):
    values = {"name": "x", "operators": [RANDOM, NOOP], "seeds": [1, 2]}
    with pytest.raises((ValueError, TypeError), match=said):
        Experiment(**{**values, **change})


def test_a_missing_policy_is_refused_before_anything_is_started(tmp_path):
    missing = OperatorConfig("rl", "trained", "CartPole-v1", policy=str(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match=r"operator 'trained': policy: .*does not exist"):
        Experiment("x", [RANDOM, missing], seeds=[1]).run(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
