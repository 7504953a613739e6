from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from parllel.runners import Callback
from parllel.runs import RunFolder, RunResult, config_values
from parllel.torch import PPO
from parllel_patterns import PPO_DEFAULTS, CurveFile, PpoParameters, curve_file, main, main_for_each

RUNNERS = Path(__file__).parent.parent / "runners"
sys.path.insert(0, str(RUNNERS))
from small_run import Config, Rates, build  # noqa: E402

pytestmark = pytest.mark.usefixtures("open_fonts")


@pytest.fixture(scope="module")
def example():
    """Import the script of an example."""
    made = []

    def example(name):
        path = Path(__file__).parents[2] / "examples" / name / "train_ppo.py"
        spec = importlib.util.spec_from_file_location(f"example_{name}", path)
        if spec.name not in sys.modules:
            made.append(spec.name)
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[spec.name]

    yield example
    for name in made:
        del sys.modules[name]


@pytest.fixture
def call(tmp_path, capsys):
    """Return a function that runs a command line, and returns result, folder and what was printed."""

    def call(*argv, config_class=Config):
        result, folder = main(
            build,
            config_class,
            base=str(tmp_path),
            name=lambda c: f"small-{c.seed}",
            argv=[str(argument) for argument in argv],
        )
        return result, folder, capsys.readouterr().out

    return call


def test_every_field_is_a_flag(call, tmp_path):
    result, folder, said = call("--seed", 3, "--n-steps", 40, "--rates.learning-rate", "0.5")
    assert folder.path == tmp_path / "small-3"
    expected = Config(seed=3, n_steps=40, rates=Rates(0.5))
    assert folder.read_record().read_config() == expected
    assert result.elapsed_steps == 40
    mean = f"{result.evaluation_return:.1f}"
    assert f"Finished after 40 environment steps: mean return {mean} in the last" in said
    assert f"Everything about this run is in {folder.path}" in said


def curve_of(tmp_path, *argv, each=None):
    """Train, write the curve, and return what the JSON file holds, or None if there is none."""
    curve = CurveFile()
    argv = [*argv, "--curve", str(tmp_path / "curve"), "--n-steps", "40"]
    runs = main_for_each(
        build, Config, each or {}, base=str(tmp_path / "runs"), argv=argv, curve=curve
    )
    curves = {f"run {i}": result.curves["evaluation"] for i, (result, _) in enumerate(runs)}
    curve.write(runs, curves, "two runs", {"chance": 3.0}, chance=3.0)
    path = tmp_path / "curve.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_the_flag_for_a_curve_is_in_the_help(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        curve_of(tmp_path, "--help")
    assert "--curve" in capsys.readouterr().out


def test_the_curve_of_several_runs_says_what_made_it(tmp_path):
    held = curve_of(tmp_path, "--seeds", "3", "4", each={"--seeds": "--seed"})
    expected = {**config_values(Config(n_steps=40))}
    del expected["seed"]  # which differs
    assert held["config"] == expected
    assert held["elapsed_steps"] == 80
    assert held["processor_seconds"] > 0
    assert held["seconds"] > 0
    assert "stopped_by" not in held
    assert (held["chance"], set(held["curves"])) == (3.0, {"run 0", "run 1"})
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_no_curve_without_the_flag_or_without_points(tmp_path):
    curve = CurveFile()
    curve.write([(RunResult(), None)], {"evaluation": [(0, 1.0)]}, "none")
    curve.name = str(tmp_path / "curve")
    curve.write([(RunResult(stopped_by="SIGINT"), None)], {"evaluation": []}, "none")
    assert not list(tmp_path.iterdir())


def test_the_curve_of_a_stopped_run_says_so(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(curve_file, "plot_learning_curve", lambda *args: titles.append(args[2]))
    for stopped_by in (None, "SIGTERM"):
        curve, path = CurveFile(), tmp_path / f"{stopped_by}.json"
        result, folder = main(build, Config, base=str(tmp_path / "runs"), argv=["--n-steps", "40"])
        result.stopped_by = stopped_by
        curve.name = str(path.with_suffix(""))
        curve.write([(result, folder)], result.curves, "one run")
        assert json.loads(path.read_text()).get("stopped_by") == stopped_by
    assert titles == ["one run", "one run (stopped early)"]


def test_a_million_may_be_written_with_an_exponent(call):
    result, folder, _ = call("--n-steps", "4e1", "--signal-at", "1e6")
    assert result.elapsed_steps == 40
    config = folder.read_record().read_config()
    assert repr((config.n_steps, config.signal_at)) == "(40, 1000000)"


def test_the_defaults_are_those_of_the_config(call):
    assert call()[1].read_record().read_config() == Config()


def test_none_and_another_folder(call, tmp_path):
    _, folder, _ = call("--signal-at", "None", "--runs", tmp_path / "others")
    assert folder.path == tmp_path / "others" / "small-0"
    assert folder.read_record().read_config().signal_at is None


def test_a_run_whose_end_nobody_can_read_of_is_returned(tmp_path, monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        done = main_for_each(
            build, Config, {"--seeds": "--seed"}, base=str(tmp_path), argv=["--seeds", "1", "2"]
        )
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            full.close()
    assert [result.elapsed_steps for result, _ in done] == [60, 60]


def test_a_solved_run_says_so(call):
    result, _, said = call("--target-return", "-100")
    assert result.solved
    assert "Solved after 20 environment steps" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sede", "3"], "--seed"),
        (["--rates.lerning-rate", "3"], "--rates.learning-rate"),
        (["--rates.lr", "3"], "--rates.lr: did you mean --rates.learning-rate?"),
        (["--lr=3"], "--lr: did you mean --rates.learning-rate?"),
        (["--n-steps", "1e-3"], "--n-steps"),
        (["--seed", "many"], "--seed"),
        (["--seed", "1.5"], "--seed"),
    ],
)
def test_a_wrong_command_line_is_explained(call, capsys, tmp_path, argv, said):
    with pytest.raises(SystemExit, match=r"^2$"):
        call(*argv)
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_names_the_flags(call, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        call("--help")
    said = capsys.readouterr().out
    for part in ("--rates.learning-rate", "--runs", "--resume", "A run that is over in a moment"):
        assert part in said


def test_help_says_what_each_flag_of_ppo_is_for(example, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit, match=r"^0$"):
        main(build, example("cartpole").Config, base=str(tmp_path), argv=["--help"])
    lines = capsys.readouterr().out.splitlines()
    tables = next(i for i, line in enumerate(lines) if " options " in line)
    assert max(map(len, lines[tables:])) <= 60
    said = " ".join(" ".join(lines).replace("│", " ").split())
    for name in config_values(PPO_DEFAULTS):
        flag = re.escape("--ppo." + name.replace("_", "-"))
        assert re.search(rf"{flag} \S+ [a-z]\w+ .*?\(default: ", said), name


def test_help_names_the_flags_of_several_runs(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main_for_each(build, Config, {"--seeds": "--seed"}, base=str(tmp_path), argv=["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--seeds VALUE [VALUE ...] makes a run for each value of --seed" in said


def test_a_stopped_run_goes_on(call):
    result, folder, said = call("--seed", 4, "--signal-at", 30)
    assert result.exit_status == 128 + signal.SIGTERM == 143
    assert "Stopped by SIGTERM after 30 environment steps" in said
    assert f"parllel resume {folder.path}" in said
    # What is not given is as it was, not as the defaults have it.
    flags = ("--signal-at", "None", "--rates.learning-rate", "0.5")
    result, resumed, said = call("--resume", folder.path, *flags)
    assert (resumed.path, result.elapsed_steps) == (folder.path, 60)
    record = folder.read_record()
    assert record.read_config() == Config(seed=4, rates=Rates(0.5))
    assert record.history[0]["changes"] == {"signal_at": None, "rates.learning_rate": 0.5}
    again, _, said = call(f"--resume={folder.path}")
    assert again == result
    assert "had ended after 60 steps: nothing to do" in said


def test_a_run_that_cannot_be_resumed(call, capsys, tmp_path):
    with pytest.raises(SystemExit, match=r"^2$"):
        call("--resume", tmp_path / "missing")
    assert capsys.readouterr().err.endswith("missing: there is no such folder\n")
    with pytest.raises(SystemExit, match=r"^2$"):
        call("--resume", tmp_path)
    assert "not the folder of a run" in capsys.readouterr().err
    _, folder, _ = call("--n-steps", 20)
    with folder.lock(), pytest.raises(SystemExit, match=r"^2$"):
        call("--resume", folder.path)
    assert "another process is using this run" in capsys.readouterr().err
    other = RunFolder(tmp_path, "other")
    other.write_record(None, {}, kind="experiment")
    with pytest.raises(SystemExit, match=r"^2$"):
        call("--resume", other.path)
    assert "expected a training run, got one of kind 'experiment'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_one_sentence(call, capsys, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"^2$"):
        call("--runs", tmp_path / "file")
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file") in line


@pytest.mark.parametrize(
    ("name", "argv", "said"),
    [
        (
            "cartpole_memory",
            "--n-eval-episodes 8",
            r"n_episodes: expected one per environment .* 8",
        ),
        ("cartpole", "--B 0", r"B: expected .* 0"),
        ("cartpole", "--seed -1", r"Seeds: .*-1"),
        ("cartpole", "--ppo.epochs 0", r"epochs: .* 0"),
        ("cartpole", "--discount 2", r"discount.* 2"),
        ("cartpole", "--log-interval-steps 0", r"log_interval_steps: expected at least 1, got 0"),
    ],
)
def test_a_value_that_a_part_refuses_is_one_sentence(example, capsys, tmp_path, name, argv, said):
    script, base = example(name), str(tmp_path / "new" / "runs")
    with pytest.raises(SystemExit, match=r"^2$"):
        main(script.build, script.Config, base=base, argv=argv.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)
    assert re.search(r"\(.*train_ppo\.py:\d+\)$", line)
    assert not list(tmp_path.iterdir())


def test_what_the_script_itself_raises_has_its_traceback(tmp_path):
    def build(config, stack, folder, console):
        raise ValueError("of the user's own")

    with pytest.raises(ValueError, match="of the user's own"):
        main(build, Config, base=str(tmp_path), argv=[])
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Needy:
    size: int
    seed: int = 0
    n_steps: int = 20
    rates: Rates = field(default_factory=Rates)
    signal_at: int | None = None
    fail_at: int | None = None
    target_return: float | None = None


def test_a_value_without_default_must_be_given(call, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        call(config_class=Needy)
    assert "--size" in capsys.readouterr().err
    _, folder, _ = call("--size", 2, config_class=Needy)
    assert folder.read_record().config["size"] == 2
    result, _, _ = call("--resume", folder.path, "--n-steps", 40, config_class=Needy)
    assert result.elapsed_steps == 40


def test_without_tyro_the_extra_is_named(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "tyro", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[cli\]' in a checkout of parllel"):
        call()


# ---------------------------------------------------------------------- several runs


def test_each_combination_is_run(tmp_path):
    argv = ["--seeds", "1", "2", "--n-steps", "20", "--sizes", "3", "4"]
    each = {"--seeds": "--seed", "--sizes": "--size"}
    done = main_for_each(build, Config, each, base=str(tmp_path), argv=argv)
    configs = [folder.read_record().read_config() for _, folder in done]
    pairs = [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert configs == [Config(seed=seed, size=size, n_steps=20) for seed, size in pairs]
    assert all(result.elapsed_steps == 20 for result, _ in done)


def test_flags_that_are_not_given_are_left_out(tmp_path):
    argv = ["--seed", "7", "--n-steps", "20"]
    ((_, folder),) = main_for_each(
        build, Config, {"--seeds": "--seed"}, base=str(tmp_path), argv=argv
    )
    assert folder.read_record().config["seed"] == 7


def test_a_signal_ends_them_all(tmp_path):
    argv = ["--seeds", "1", "2", "--signal-at", "10"]
    with pytest.raises(SystemExit, match=r"^143$"):
        main_for_each(
            build, Config, {"--seeds": "--seed"}, base=str(tmp_path), name="small", argv=argv
        )
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


class Enough(Callback):
    """Stop after the first batch."""

    def start(self, runner):
        runner.stop("enough")


def build_stopping(config, stack, folder, console):
    runner = build(config, stack, folder, console)
    runner.callbacks.append(Enough())
    return runner


def test_a_callback_that_stops_one_leaves_the_others(tmp_path):
    argv = ["--seeds", "1", "2"]
    done = main_for_each(
        build_stopping, Config, {"--seeds": "--seed"}, base=str(tmp_path), argv=argv
    )
    assert [result.stopped_by for result, _ in done] == ["enough", "enough"]


# ---------------------------------------------------------------------- as a script

SCRIPT = f"""
import sys

sys.path.insert(0, {str(RUNNERS)!r})
from dataclasses import dataclass
import small_run
from parllel_patterns import main


@dataclass(frozen=True)
class Config(small_run.Config):
    more: tuple[int, ...] = (1, 2)


def build(config, stack, folder, console):
    assert type(config) is Config
    return small_run.build(config, stack, folder, console)


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs", name="small")
    raise SystemExit(result.exit_status)
"""


def test_a_script_is_stopped_and_resumed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def run(*arguments):
        command = [sys.executable, str(script), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    stopped = run("--seed", "4", "--signal-at", "30", "--more", "3", "4", "5")
    assert stopped.returncode == 143, stopped.stderr
    folder = RunFolder.open(tmp_path / "runs" / "small")
    record = folder.read_record()
    assert record.build_function.name == "__main__:build"
    assert record.build_function.file == str(script)
    assert record.config["more"] == [3, 4, 5]
    assert record.command[1:4] == [str(script), "--seed", "4"]
    done = run("--resume", "runs/small", "--signal-at", "None")
    assert done.returncode == 0, done.stderr
    # And by another program, which finds build function and config in the script.
    by_name = "from parllel.runners import resume; resume('runs/small', changes={'n_steps': '80'})"
    subprocess.run([sys.executable, "-c", by_name], cwd=tmp_path, check=True)
    record = folder.read_record()
    assert record.outcome["elapsed_steps"] == 80
    assert [entry["changes"] for entry in record.history] == [
        {"signal_at": None},
        {"n_steps": "80"},
    ]
    assert json.loads((folder.path / "config.json").read_text())["more"] == [3, 4, 5]


INTERRUPTED_SCRIPT = """
import os, sys, time
from dataclasses import dataclass
from pathlib import Path

from parllel import Seeds
from parllel.samplers import Plan
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import build_cages, main


@dataclass(frozen=True)
class Config:
    workers: int = 0


class Slow(CountingEnv):
    def __init__(self):
        Path(f"made-{os.getpid()}").touch()
        # In short parts: Python starts a sleep although a signal has just arrived.
        for _ in range(6000):
            time.sleep(0.1)


def build(config, stack, folder, console):
    build_cages(Slow, 2, seeds=Seeds(0), parallel=Plan(config.workers, 2 - config.workers), stack=stack)


if __name__ == "__main__":
    main(build, Config, base="runs")
"""


def of_session(session):
    """Return the living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, _, rest = stat.read_text().partition(" (")
            state, _, _, of = rest.rpartition(") ")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(pid))
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_while_cages_are_built_ends_a_script_in_one_line(tmp_path, workers):
    script = tmp_path / "train.py"
    script.write_text(INTERRUPTED_SCRIPT)
    # In a session of its own, as the shell of a terminal gives it a foreground group.
    with subprocess.Popen(
        [sys.executable, str(script), "--workers", str(workers)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while len(list(tmp_path.glob("made-*"))) < max(workers, 1):
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert said == "SIGINT while the run was being put together: nothing was trained\n"
    assert process.returncode == 130
    assert not (tmp_path / "runs").exists()
    deadline = time.monotonic() + 30
    while left := of_session(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("stopped_by", "status"), [(None, 0), ("no progress", 0), ("SIGINT", 130), ("SIGTERM", 143)]
)
def test_exit_statuses_are_those_of_shells(stopped_by, status):
    assert RunResult(stopped_by=stopped_by).exit_status == status


# ---------------------------------------------------------------------- parameters


def test_parameters_are_what_ppo_takes():
    taken = set(inspect.signature(PPO.__init__).parameters) - {"self", "agent", "seed", "update"}
    assert set(PPO_DEFAULTS.keys()) == taken


def test_parameters_are_a_mapping():
    given = dict(**PPO_DEFAULTS)
    assert given == {name: getattr(PPO_DEFAULTS, name) for name in given}
    assert PpoParameters(**{**PPO_DEFAULTS, "epochs": 9}) == replace(PPO_DEFAULTS, epochs=9)
    assert PPO_DEFAULTS["epochs"] == 4
