from __future__ import annotations

import csv
import importlib.util
import json
import math
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from parllel.errors import UnusableDeviceError
from parllel.runners import resume, train
from parllel.runs import RunFolder
from parllel.seeding import Seeds

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# Each with a budget that is over at once.
COMMANDS = {
    "cartpole": ["cartpole/train_ppo.py", "--n-steps", "2048", "--T", "64", "--seed", "5"],
    "cartpole_jax": [
        "cartpole_jax/train_ppo.py",
        "--n-steps",
        "2048",
        "--T",
        "64",
        "--curve",
        "curve",
    ],
    "half_cheetah": [
        "half_cheetah/train_ppo.py",
        "--n-steps",
        "2048",
        "--n-eval-episodes",
        "5",
        "--curve",
        "curve",
    ],
    "cartpole_memory": [
        "cartpole_memory/train_ppo.py",
        "--n-steps",
        "1024",
        "--seeds",
        "3",
        "--memory",
        "gru",
        "none",
        "--curve",
        "curve",
    ],
    "mpe independent": ["mpe/train_ppo.py", "independent", "--n-steps", "2048", "--curve", "curve"],
    "mpe shared": ["mpe/train_ppo.py", "shared", "--n-steps", "2048"],
    "cartpole async": ["cartpole_async/train_ppo.py", "--n-steps", "2048", "--T", "64"],
    "cartpole stale": [
        "cartpole_stale/train_ppo.py",
        "--n-steps",
        "2048",
        "--log-interval-steps",
        "1024",
        "--seeds",
        "3",
        "4",
        "--correction",
        "weights",
        "none",
        "--curve",
        "curve",
    ],
    "cartpole cluster": [
        "cartpole_cluster/train_ppo.py",
        "--n-steps",
        "1024",
        "--T",
        "16",
        "--B",
        "8",
    ],
    "compiled_cartpole": ["compiled_cartpole/train_ppo.py", "--n-steps", "2048", "--seed", "5"],
    "compiled_memory": ["compiled_memory/train_ppo.py", "--n-steps", "600", "--memory", "lstm"],
    "extra_input": ["extra_input/train_ppo.py", "--n-steps", "2048"],
    "pong": ["pong/train_ppo.py", "--n-steps", "64", "--T", "16", "--B", "2"],
}
# Off-policy learning begins in the middle of each.
_OFF_POLICY = {
    "half_cheetah sac": ("half_cheetah/train_sac.py", 160, "--sac.random-steps 40 --B 2"),
    "cartpole dqn": ("cartpole/train_dqn.py", 2048, "--T 16 --seed 5"),
    "pong dqn": ("pong/train_dqn.py", 64, "--T 8 --B 2 --max-frames 200 --curve curve"),
    "cartpole_memory r2d1": ("cartpole_memory/train_r2d1.py", 2048, "--memory gru --length 10"),
    "gallery dqn": ("gallery/train.py mountaincar-dqn", 2048, "--B 8"),
    "gallery sac": ("gallery/train.py pendulum-sac", 160, "--sac.random-steps 40"),
}
for _name, (_script, _steps, _more) in _OFF_POLICY.items():
    _sizes = {"n-steps": _steps, "learning-starts": _steps // 2, "replay-steps": 2 * _steps}
    _sizes |= {"n-eval-episodes": 2, "batch-size": 8, "log-interval-steps": _steps}
    _flags = [part for name, value in _sizes.items() for part in (f"--{name}", str(value))]
    COMMANDS[_name] = [*_script.split(), *_flags, *_more.split()]
COMMANDS["cartpole cluster"] += ["--log-interval-steps", "512", "--n-eval-episodes", "4"]
COMMANDS["cartpole cluster processes"] = [*COMMANDS["cartpole cluster"], "--processes"]
COMMANDS["cartpole parallel"] = [*COMMANDS["cartpole"], "--parallel"]
COMMANDS["half_cheetah learners"] = [*COMMANDS["half_cheetah"][:5], "--learners", "2"]
COMMANDS["pong"] += [
    "--max-frames",
    "200",
    "--n-eval-episodes",
    "1",
    "--ppo.minibatches",
    "2",
    "--curve",
    "curve",
]
UNSOLVED = 1  # what scripts with a target exit with
UNSOLVED_BY = [
    f"{folder}/train_ppo.py"
    for folder in (
        *("cartpole", "cartpole_jax", "cartpole_async", "cartpole_cluster"),
        *("compiled_cartpole", "compiled_memory"),
    )
] + ["cartpole/train_dqn.py"]
PNG = b"\x89PNG\r\n\x1a\n"


def run(scripts, name, folder):
    script, *arguments = COMMANDS[name]
    done = scripts.run(EXAMPLES / script, *arguments, "--runs", "runs", cwd=folder)
    expected = UNSOLVED if script in UNSOLVED_BY else 0
    assert done.returncode == expected, done.stdout + done.stderr
    # MuJoCo has something to say about the model that comes with Gymnasium.
    lines = [line for line in done.stderr.splitlines() if line and "settotalmass" not in line]
    assert lines == []
    made = sorted((folder / "runs").iterdir())
    for path in made:
        assert f"Everything about this run is in {path.relative_to(folder)}" in done.stdout
    return made[0]


@pytest.fixture(scope="module")
def here(scripts, tmp_path_factory):
    return run(scripts, "cartpole", tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def parallel(scripts, tmp_path_factory):
    return run(scripts, "cartpole parallel", tmp_path_factory.mktemp("parallel"))


@pytest.fixture(scope="module")
def cheetah(scripts, tmp_path_factory):
    return run(scripts, "half_cheetah", tmp_path_factory.mktemp("cheetah"))


def rows_of(folder):
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def state_of(folder):
    return RunFolder.open(folder).checkpoints.load_newest()[1]


def check_folder(folder):
    files = {path.name: path for path in folder.iterdir()}
    events = [name for name in files if name.startswith("events.out.tfevents")]
    assert len(events) == 1
    assert files[events[0]].stat().st_size > 1000
    # git.diff is there if the source is not as it was committed.
    assert set(files) - set(events) - {"git.diff"} == {
        "allocators.json",
        "best",
        "checkpoints",
        "config.json",
        "learning_curve.png",
        "lock",
        "log.txt",
        "progress.csv",
        "progress.jsonl",
        "run.json",
        "seeds.json",
        "versions.json",
    }
    config = json.loads(files["config.json"].read_text())
    assert config["n_steps"] == 2048
    seeds = Seeds.load(files["seeds.json"])
    assert seeds.entropy == config["seed"]
    given = json.loads(files["seeds.json"].read_text())["given"]
    assert {"agent", "algorithm", "environments", "evaluation", "model"} <= set(given)
    found = json.loads(files["versions.json"].read_text())
    assert found["torch"].startswith(torch.__version__.split("+")[0])
    assert "train_ppo.py" in found["command"]
    assert "evaluation/return" in files["log.txt"].read_text()
    assert files["learning_curve.png"].read_bytes().startswith(PNG)
    assert state_of(folder)["elapsed_steps"] == 2048
    record = RunFolder.open(folder).read_record()
    assert record.build_function.name == "__main__:build"
    assert record.outcome["elapsed_steps"] == 2048
    assert record.history == []
    return config


def test_every_script_is_run_here():
    # But those that need a server, workers, a broker or other libraries: they have tests of their own.
    others = ("messaging", "operators", "remote", "vector")
    folders = [path for path in EXAMPLES.iterdir() if path.name not in others]
    found = [path for folder in folders for path in folder.rglob("*.py")]
    scripts = {str(path.relative_to(EXAMPLES)) for path in found}
    assert {command[0] for command in COMMANDS.values()} == scripts


def test_cartpole_leaves_a_complete_folder(here):
    config = check_folder(here)
    assert (config["seed"], config["parallel"]) == (5, False)
    rows = rows_of(here)
    assert [row["step"] for row in rows] == ["0", "2048"]
    assert rows[1]["evaluation/return/count"] == "16"
    assert float(rows[1]["training/length/count"]) > 10


def test_cartpole_in_processes_learns_the_same(here, parallel):
    assert check_folder(parallel)["parallel"] is True
    one, other = rows_of(here), rows_of(parallel)
    assert list(one[0]) == list(other[0])
    for row, other_row in zip(one, other, strict=True):
        for name, value in row.items():
            if not name.startswith("time/"):
                assert other_row[name] == value, name
    agents = [state_of(folder)["parts"]["agent"] for folder in (here, parallel)]
    for name, array in agents[0]["model"].items():
        np.testing.assert_array_equal(array, agents[1]["model"][name], err_msg=name)


def test_half_cheetah_leaves_a_complete_folder_and_a_curve(cheetah):
    check_folder(cheetah)
    rows = rows_of(cheetah)
    assert [row["step"] for row in rows] == ["0", "2048"]
    assert float(rows[1]["sampler/NormalizeRewards/std"]) > 0
    assert float(rows[1]["sampler/NormalizeObservations/std/mean"]) > 0
    assert math.isfinite(float(rows[1]["algorithm/value_loss"]))
    curve = json.loads((cheetah.parent.parent / "curve.json").read_text())
    assert [step for step, _ in curve["curves"]["evaluation"]] == [0, 2048]
    assert curve["config"]["env_id"] == "HalfCheetah-v5"
    assert (cheetah.parent.parent / "curve.png").read_bytes().startswith(PNG)


def test_cartpole_in_a_sampling_process_of_its_own(scripts, tmp_path):
    made = run(scripts, "cartpole async", tmp_path)
    rows = rows_of(made)
    assert [row["step"] for row in rows] == ["0", "2048"]
    assert rows[1]["evaluation/return/count"] == "16"
    assert float(rows[1]["training/length/count"]) > 10
    # Two batches: the first with the weights of the start, and so the second, which was begun meanwhile.
    assert float(rows[1]["asynchronous/staleness/mean"]) == 0.5
    assert set(state_of(made)["parts"]["sampler"]) == {"agent", "sampler"}
    assert "updates are computed by the method 'flat'" in (made / "log.txt").read_text()


def test_cartpole_in_jax_leaves_a_curve(scripts, tmp_path):
    made = run(scripts, "cartpole_jax", tmp_path)
    rows = rows_of(made)
    assert [row["step"] for row in rows] == ["0", "2048"]
    assert math.isfinite(float(rows[1]["algorithm/value_loss"]))
    assert state_of(made)["elapsed_steps"] == 2048
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [step for step, _ in curve["curves"]["seed 0"]] == [0, 2048]
    assert "jax" in curve["versions"]


def test_a_policy_with_a_memory_leaves_curves(scripts, tmp_path):
    made = run(scripts, "cartpole_memory", tmp_path)
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert set(curve["curves"]) == {"gru, seed 3", "none, seed 3"}
    assert curve["curves"]["gru, seed 3"][0][0] == 0
    assert "memory" not in curve["config"]
    assert curve["processor_seconds"] > 0
    assert [path.name for path in sorted(made.parent.iterdir())] == [
        "ppo-gru-seed3",
        "ppo-none-seed3",
    ]
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    # Steps that environments waited through are none.
    (_, last) = rows_of(made)
    assert 1024 <= int(last["step"]) < 1024 + 128 * 16
    assert state_of(made)["elapsed_steps"] == int(last["step"])


def test_old_batches_leave_curves_and_go_on_with_their_weights(scripts, tmp_path, open_fonts):
    made = run(scripts, "cartpole stale", tmp_path)
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert curve["steps_to_475"] == {"weights": [None, None], "none": [None, None]}
    for points in curve["curves"].values():
        assert [step for step, *_ in points] == [0, 1024, 2048]
        assert all(low <= median <= high for _, median, low, high in points)
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    weighted = RunFolder.open(made.parent / "ppo-weights-seed3")
    last = rows_of(weighted.path)[-1]
    assert 0 < float(last["algorithm/ImportanceWeights/weight"]) < 1
    # Four batches of 512 steps: all weights so far are still to be used.
    _, state = weighted.checkpoints.load_newest()
    assert len(state["parts"]["sampler"]["weights"]) == 4
    result, _ = resume(weighted.path, changes={"n_steps": 2560})
    assert result.elapsed_steps == 2560


def test_compiled_cartpole_learns_as_cartpole_does(scripts, tmp_path):
    made = run(scripts, "compiled_cartpole", tmp_path)
    assert check_folder(made)["seed"] == 5
    assert "updates are computed by the method 'flat'" in (made / "log.txt").read_text()


def test_a_compiled_maze_that_needs_a_memory(scripts, tmp_path):
    made = run(scripts, "compiled_memory", tmp_path)
    first, last = rows_of(made)
    assert float(first["evaluation/length/max"]) <= 40
    assert 600 <= int(last["step"]) <= 600 + 40 * 64
    assert float(last["training/length/count"]) >= 64


def test_an_input_of_the_users_own(scripts, tmp_path):
    check_folder(run(scripts, "extra_input", tmp_path))


def test_pong_is_resumed_with_each_frame_stored_once(scripts, tmp_path, open_fonts):
    made = run(scripts, "pong", tmp_path)
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [step for step, _ in curve["curves"]["evaluation"]] == [0, 64]
    allocators = json.loads((made / "allocators.json").read_text())
    assert allocators["env.observation"]["class"] == "LazyFramesArray"
    assert float(rows_of(made)[-1]["evaluation/length/max"]) <= 50  # actions, of four frames each
    resume(made, changes={"n_steps": 96})
    assert state_of(made)["elapsed_steps"] == 96


def test_independent_agents_leave_curves_and_a_return_for_each(scripts, tmp_path):
    made = run(scripts, "mpe independent", tmp_path)
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [step for step, _ in curve["curves"]["seed 0"]] == [0, 2048]
    assert curve["random"]["mean"] < 0 < curve["random"]["standard_error"]
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    last = rows_of(made)[-1]
    returns = [float(last[f"training/return_agent_{i}/mean"]) for i in range(3)]
    assert sum(returns) == pytest.approx(float(last["training/return/mean"]))
    state = state_of(made)["parts"]["agent"]
    assert (
        set(state)
        == set(state["_others"]) | {"_others"}
        == {"_others", "agent_0", "agent_1", "agent_2"}
    )


def test_agents_that_share_a_model(scripts, tmp_path):
    check_folder(run(scripts, "mpe shared", tmp_path))


@pytest.mark.parametrize("name", _OFF_POLICY)
@pytest.mark.few(1)
def test_off_policy_runs_go_on_with_their_replays(scripts, tmp_path, open_fonts, name):
    made = run(scripts, name, tmp_path)
    steps = _OFF_POLICY[name][1]
    first, last = rows_of(made)
    assert (first["step"], first["replay/updates"]) == ("0", "")
    updates = int(last["replay/updates"])
    assert 0 < updates <= steps
    stored = int(last["replay/stored"])
    assert stored > 0
    state = state_of(made)
    assert state["parts"]["replay"]
    reached = state["elapsed_steps"]
    result, _ = resume(made, changes={"n_steps": reached + steps // 2})
    last = rows_of(made)[-1]
    assert int(last["step"]) == result.elapsed_steps >= reached + steps // 2
    # Learning goes on at once, from the steps of before too.
    assert int(last["replay/updates"]) > updates
    assert int(last["replay/stored"]) > stored


# ---------------------------------------------------------------------- from Python


@contextmanager
def imported(path):
    """Import an example."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    threads = torch.get_num_threads()
    spec.loader.exec_module(module)
    yield module
    torch.set_num_threads(threads)
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def cartpole(open_fonts):
    """Return the example as a module."""
    with imported(EXAMPLES / "cartpole" / "train_ppo.py") as module:
        yield module


# Without JAX: a process in which it has started must not fork, as other tests do.
WITH_DEVICE = [
    path
    for path in sorted(EXAMPLES.rglob("*.py"))
    if "device: str" in path.read_text() and path.parent.name != "cartpole_jax"
]


@pytest.mark.parametrize("path", WITH_DEVICE, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.few(3)
def test_models_are_put_on_the_device_of_the_config(path, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(path.parent))
    refused = pytest.raises(UnusableDeviceError, match="got 'cuda:63'")
    with imported(path) as module, ExitStack() as stack, refused:
        module.build(module.Config(device="cuda:63"), stack, RunFolder(tmp_path, "run"), None)


def test_a_model_in_jax_is_put_on_the_device_of_the_flag(scripts, tmp_path):
    script = EXAMPLES / "cartpole_jax" / "train_ppo.py"
    done = scripts.run(script, "--device", "cuda:63", cwd=tmp_path)
    assert done.returncode != 0
    assert "got 'cuda:63'" in done.stderr


def small(module, **changes):
    sizes = {"T": 16, "B": 4, "n_steps": 256, "log_interval_steps": 128, "n_eval_episodes": 4}
    return module.Config(**{**sizes, **changes})


def test_a_run_can_be_called(cartpole, tmp_path):
    config = small(cartpole, target_return=1.0)
    result, folder = train(cartpole.build, config, base=tmp_path)
    assert result.solved
    assert result.elapsed_steps == 128
    assert folder.path.parent == tmp_path
    assert folder.read_record().read_config(config_class=cartpole.Config) == config


@pytest.mark.parametrize("seed", range(5))
def test_cartpole_begins_with_a_policy_that_knows_nothing(cartpole, tmp_path, seed):
    with ExitStack() as stack:
        runner = cartpole.build(small(cartpole, seed=seed), stack, RunFolder(tmp_path, "r"), None)
        returns = [traj.return_ for traj in runner.eval_sampler.collect_batch(0)[1]]
    assert np.mean(returns) < 15  # the mode of random weights balanced the pole for 480 steps


def test_equal_seeds_give_equal_runs(cartpole, tmp_path):
    weights = []
    for seed in (1, 1, 2):
        _, folder = train(cartpole.build, small(cartpole, seed=seed), base=tmp_path)
        model = state_of(folder.path)["parts"]["agent"]["model"]
        weights.append(np.concatenate([array.ravel() for array in model.values()]))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert (weights[0] != weights[2]).any()


def states_of(runner):
    parts = {"agent": runner.algorithm.agent, "algorithm": runner.algorithm}
    return {name: part.state() for name, part in {**parts, "sampler": runner.sampler}.items()}


def assert_same(found, expected, at="state"):
    if isinstance(expected, dict):
        assert set(found) == set(expected), at
        for name, value in expected.items():
            assert_same(found[name], value, f"{at}.{name}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), at
        for i, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, at=f"{at}[{i}]")
    else:
        np.testing.assert_array_equal(found, expected, err_msg=at)


def test_a_checkpoint_restores_agent_algorithm_and_sampler(cartpole, tmp_path):
    console = Console(quiet=True)
    with ExitStack() as stack:
        folder = RunFolder(tmp_path, "first")
        first = cartpole.build(small(cartpole), stack, folder, console)
        first.run()
        _, state = folder.checkpoints.load_newest()
        other_seed = small(cartpole, seed=9)
        second = cartpole.build(other_seed, stack, RunFolder(tmp_path, "second"), console)
        second.load_state(state)
        assert_same(states_of(second), states_of(first))
        # Both go on alike, by the same episodes, noise, shuffles, moments and rates.
        for runner in (first, second):
            runner.n_steps = 512
            runner.run()
        assert_same(states_of(second), states_of(first))
