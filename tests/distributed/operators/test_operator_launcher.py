"""What a worker is started with, and what is refused before anything is started."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from launching import HOSTILE, LONG_S, Hostile

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig, OperatorLauncher
from parllel.errors import ClosedError, WrongStateError
from parllel.system.processes.process_table import process_runs

SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"


def shown(launcher: OperatorLauncher, tmp_path: Path, **options: Any) -> tuple[dict[str, str], Any]:
    """Return the variables and arguments of a program that was launched."""
    config = OperatorConfig("program", "one", worker=[sys.executable, "-c", SHOW], **options)
    handle = launcher.launch_operator(config, "run_1")
    assert handle.wait(LONG_S) == 0
    handle.end()
    line = (launcher.log_dir / "run_1.log").read_text().splitlines()[-1]
    variables, words = json.loads(line)
    return variables, words


# ---------------------------------------------------------------------- refused


def test_nothing_is_started_for_an_operator_that_lacks_something(
    launcher: OperatorLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(**settings: Any) -> OperatorConfig:
        return OperatorConfig("llm", "o", "CartPole-v1", settings={"model": "any", **settings})

    for name in ("NO_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "policy.py"
    lacking: dict[str, OperatorConfig] = {
        "policy: .*'/nowhere', which does not exist": OperatorConfig(
            "rl", "o", "CartPole-v1", policy="/nowhere"
        ),
        "file .*policy.py' not found": OperatorConfig(
            "policy", "o", "CartPole-v1", policy=f"{file}:act"
        ),
        "got 'nothing', but there is no such folder": OperatorConfig(
            "policy", "o", "CartPole-v1", policy="nothing"
        ),
        "environment .*policy.py: there is no such file": OperatorConfig(
            "human", "o", f"{file}:make"
        ),
        "env_id: expected the id of an env": OperatorConfig("baseline", "o", policy="random"),
        "environment 'pettingzoo/classic/chess_v6' is a game of several players": OperatorConfig(
            "chess", "o", "pettingzoo/classic/chess_v6", policy="random"
        ),
        "environment 'CartPoel-v1': Environment `CartPoel` doesn't exist": OperatorConfig(
            "human", "o", "CartPoel-v1"
        ),
        "environment 'nowhere:X-v0': needs nowhere, which is not installed": OperatorConfig(
            "human", "o", "nowhere:X-v0"
        ),
        "environment 'a b': expected a Gymnasium id": OperatorConfig("human", "o", "a b"),
        "program '/no/worker' not found": OperatorConfig("program", "o", worker=["/no/worker"]),
        "settings: the environment variable NO_KEY is not set": model(api_key_env="NO_KEY"),
        "settings: the environment variable OPENAI_API_KEY is not set": model(),
        "settings: model: expected the name of a model, got None": model(model=None),
        "settings: provider: expected one of anthropic, .*; got 'skynet'": model(provider="skynet"),
        "settings: base_url: expected http://host:port/path.*, got 'host:8000'": model(
            base_url="host:8000"
        ),
        "settings: retries: expected a whole number of at least 0, got -1": model(retries=-1),
        "settings: unparsed: expected one of error, random, first, noop; got 'guess'": model(
            unparsed="guess"
        ),
        "settings: price: expected a prompt price and a completion price, each per million": model(
            price=3
        ),
        "settings: price: prompt: expected a number of at least 0, got '1'": model(
            price={"prompt": "1", "completion": 2}
        ),
        "settings: expected names from action_names, .*; got .'modle'.": model(modle="any"),
    }
    for said, config in lacking.items():
        for call in (launcher.check, lambda config: launcher.launch_operator(config, "run_1")):
            with pytest.raises(
                (ValueError, FileNotFoundError, ImportError), match=f"operator 'o': .*{said}"
            ) as raised:
                call(config)
            assert "\n" not in str(raised.value)
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize("run_id", ["", "a/b", "..", None, "x" * 129])
def test_a_run_id_can_be_part_of_file_names(launcher: OperatorLauncher, run_id: Any) -> None:
    config = OperatorConfig("program", "o", worker=["true"])
    with pytest.raises(ValueError, match="operator 'o': run_id: expected 1 to 128 letters"):
        launcher.launch_operator(config, run_id)


def test_an_operator_runs_once(launcher: OperatorLauncher, hostile: Hostile) -> None:
    first = hostile(operator_id="one")
    with pytest.raises(
        WrongStateError, match=f"'one' is already running as process {first.pid}; end it"
    ):
        hostile(operator_id="one")
    with pytest.raises(WrongStateError, match="operator 'one' is already running"):
        launcher.check(first.config)
    other = OperatorConfig("program", "two", worker=HOSTILE)
    with pytest.raises(WrongStateError, match="run_id 'run_one' is in use by operator 'one'"):
        launcher.launch_operator(other, "run_one", interactive=True)
    first.end()
    second = hostile(operator_id="one")
    second.send_step(action=["kill"])
    assert second.wait(LONG_S) == -9
    hostile(operator_id="one").send_ping()  # one that died by itself is free as well


def test_players_are_checked(launcher: OperatorLauncher) -> None:
    players = {"a": OperatorConfig("policy", "one", policy="nothing")}
    with pytest.raises(
        FileNotFoundError,
        match=r"operator 'one': policy: .* got 'nothing', but there is no such folder",
    ):
        launcher.check(MultiAgentConfig("game", "pettingzoo/rps_v2", players))


# ---------------------------------------------------------------------- what it is started with


def test_command_lines(launcher: OperatorLauncher) -> None:
    python = [sys.executable, "-m"]
    config = OperatorConfig(
        "rl",
        "o",
        "CartPole-v1",
        policy="runs/x",
        env_kwargs={"size": 5},
        max_steps=9,
        settings={"a": 1},
    )
    assert launcher._build_rl_command(config, "run_1", True) == [
        *python,
        "parllel.distributed.operators.workers.rl_worker",
        "--env-id=CartPole-v1",
        '--env-kwargs={"size": 5}',
        "--policy=runs/x",
        '--settings={"a": 1}',
        "--run-id",
        "run_1",
        "--max-steps=9",
        "--interactive",
    ]
    config = OperatorConfig("baseline", "o", policy="random")
    assert launcher._build_baseline_command(config, "run_1", False) == [
        *python,
        "parllel.distributed.operators.workers.operators_worker",
        "--policy=random",
        "--run-id",
        "run_1",
    ]
    for env_id, worker in (
        ("pettingzoo/chess_v6", "chess_worker"),
        ("BabyAI-GoToRedBall-v0", "balrog_worker"),
        ("minigrid:MiniGrid-Empty-5x5-v0", "balrog_worker"),
        ("CartPole-v1", "operators_worker"),
    ):
        config = OperatorConfig("llm", "o", env_id)
        command = launcher._build_llm_command(config, "run_1", True)
        assert command[2] == f"parllel.distributed.operators.workers.{worker}"


def test_variables(
    launcher: OperatorLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OTHERS", "sk-others")
    monkeypatch.setenv("CHOSEN_ONE", "1")
    monkeypatch.setenv("HTTPS_PROXY", "socks5://nowhere")
    variables, _ = shown(
        launcher,
        tmp_path,
        env_id="CartPole-v1",
        env_kwargs={"n": 1},
        max_steps=3,
        passed=["CHOSEN_*"],
    )
    assert {name: variables.get(name) for name in variables if name.startswith("OPERATOR_")} == {
        "OPERATOR_ID": "one",
        "OPERATOR_RUN_ID": "run_1",
        "OPERATOR_ENV_ID": "CartPole-v1",
        "OPERATOR_ENV_KWARGS": '{"n": 1}',
        "OPERATOR_MAX_STEPS": "3",
    }
    assert variables["TELEMETRY_DIR"] == str(tmp_path / "var/operators/telemetry")
    assert (variables["MPI4PY_RC_INITIALIZE"], variables["CHOSEN_ONE"]) == ("0", "1")
    assert not {"SECRET_OF_OTHERS", "HTTPS_PROXY"} & set(variables)


@pytest.mark.parametrize(
    ("url", "are_passed"),
    [
        ("http://localhost:8000/v1", False),
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
        ("https://api.example.com/v1", True),
        (None, True),
    ],
)
def test_proxies_are_kept_from_those_who_ask_this_machine(
    monkeypatch: pytest.MonkeyPatch, url: str | None, are_passed: bool
) -> None:
    from parllel.distributed.operators.workers.worker_environment import passed_variables

    proxies = {"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "http_proxy", "https_proxy"}
    for name in (*proxies, "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "socks5://nowhere")
    settings = {} if url is None else {"base_url": url}
    config = OperatorConfig("llm", "o", settings=settings, passed=["*_proxy", "*_PROXY"])
    assert bool(proxies & set(passed_variables(config))) is are_passed
    assert ("SSL_CERT_FILE" in passed_variables(config)) is are_passed
    if are_passed:
        assert proxies <= set(passed_variables(config))
    vllm = OperatorConfig("llm", "o", settings={"provider": "vllm"}, passed=["*_proxy", "*_PROXY"])
    assert not proxies & set(passed_variables(vllm))


def test_a_key_gets_there_by_the_name_of_its_variable_alone(
    launcher: OperatorLauncher, hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-of-this-test-alone"
    monkeypatch.setenv("SOME_KEY", key)
    worker = hostile(settings={"api_key_env": "SOME_KEY"}, variables={"OTHER": key + "-2"})
    worker.send_step(action=[["environ", "SOME_KEY"], ["errors", 1], ["environ", "OTHER"]])
    assert worker.read_response(LONG_S)["raw"] == key
    seen = b"".join(
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)
    )
    assert key.encode() not in seen
    worker.end()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(key.encode() in content for content in written)


def readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:  # it has ended since
        return False


# ---------------------------------------------------------------------- the end


def test_threads_may_launch(launcher: OperatorLauncher) -> None:
    """Each id once, whichever thread is first, and none is left by `close` (the leak guard sees)."""
    config = OperatorConfig("program", "one", worker=HOSTILE)
    others = [OperatorConfig("program", f"o{i}", worker=HOSTILE) for i in range(4)]
    outcomes: list[Any] = []

    def launch(config: OperatorConfig, run_id: str) -> None:
        try:
            outcomes.append(launcher.launch_operator(config, run_id, interactive=True).operator_id)
        except WrongStateError:
            outcomes.append("refused")

    jobs = [(config, f"run_{i}") for i in range(4)] + [(own, own.operator_id) for own in others]
    threads = [threading.Thread(target=launch, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["o0", "o1", "o2", "o3", "one", "refused", "refused", "refused"]


def test_a_log_of_each(launcher: OperatorLauncher, hostile: Hostile, tmp_path: Path) -> None:
    for name in ("one", "two"):
        worker = hostile(operator_id=name)
        worker.send_step(action=["reply", ["exit", 1]])
        assert worker.wait(LONG_S) == 1
        log = tmp_path / f"var/operators/logs/run_{name}.log"
        assert log.read_text() == "the last words\n"
        assert log.stat().st_mode & 0o777 == 0o600


def test_the_folders_stay_when_the_current_one_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with OperatorLauncher() as launcher:
        os.mkdir("elsewhere")
        monkeypatch.chdir("elsewhere")
        assert launcher.log_dir == tmp_path / "var/operators/logs"
        assert launcher.telemetry_dir == tmp_path / "var/operators/telemetry"


def test_sixteen_that_ignore_sigterm_end_side_by_side(
    launcher: OperatorLauncher, hostile: Hostile
) -> None:
    workers = [hostile("--stubborn", operator_id=f"o{i}") for i in range(16)]
    for worker in workers:
        worker.send_step(action=["fork", "reply", "deaf"])
    for worker in workers:
        assert worker.read_response(LONG_S)["step_index"] == 1
    began = time.monotonic()
    launcher.close()
    # It takes 3 s if the machine is free; one after the other they would take 40 s.
    assert time.monotonic() - began < 20.0
    assert not any(process_runs(worker.pid) for worker in workers)
    launcher.close()
    with pytest.raises(ClosedError, match="OperatorLauncher: used after it was closed"):
        hostile(operator_id="late")
