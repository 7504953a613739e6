"""`parllel remote run`, `evaluate`, `step`, `load` and `list`: episodes between agents."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.environment import Environment, make
from parllel.distributed.remote.evaluate import evaluate as evaluate_agents
from parllel.distributed.remote.games.registry import environments, import_module_of_user
from parllel.distributed.remote.server.command_values import (
    agent_variables,
    agents_of,
    flag_value,
    json_value,
    read_json_file,
    write_result,
)
from parllel.distributed.wire.json_text import json_bytes
from parllel.policies.env_names import names_code

AGENT_FAILED = 1  # exit status
_FAILED = ("ERROR", "INVALID", "TIMEOUT")


def run(arguments: argparse.Namespace) -> int:
    """Play an episode and write it. Returns the exit status."""
    mode = _render_mode(arguments)
    with _environment(arguments) as environment:
        environment.run(agents_of(arguments))
        _write_logs(environment, arguments.log)
        write_result(environment.render(mode), arguments.out)
        failed = any(state["status"] in _FAILED for state in environment.state)
        stopped = environment.info.get("stopped")
    if stopped:
        _warn(f"parllel remote run: the episode was stopped {stopped}: it has no result")
    return AGENT_FAILED if failed or stopped else 0


def evaluate(arguments: argparse.Namespace) -> int:
    """Play episodes and write their rewards. Returns the exit status."""
    _import(arguments)
    if arguments.episodes < 1:
        raise ValueError(f"--episodes: expected at least 1, got {arguments.episodes}")
    with _progress(arguments.episodes) as progress:
        results = evaluate_agents(
            arguments.environment,
            agents_of(arguments),
            json_value(arguments.configuration, "--configuration", dict),
            episodes=arguments.episodes,
            steps=json_value(arguments.steps, "--steps", list),
            debug=flag_value(arguments.debug, "--debug"),
            statuses=True,
            info=json_value(arguments.info, "--info", dict),
            on_episode=progress,
            settings=_settings(arguments),
        )
    shown = results if arguments.statuses else [result["rewards"] for result in results]
    write_result(shown, arguments.out)
    failed = any(status in _FAILED for result in results for status in result["statuses"])
    stopped = [result["stopped"] for result in results if "stopped" in result]
    if stopped:
        _warn(
            f"parllel remote evaluate: {len(stopped)} of {len(results)} episodes were stopped "
            f"{stopped[0]}: their rewards are null"
        )
    return AGENT_FAILED if failed or stopped else 0


def step(arguments: argparse.Namespace) -> int:
    """Advance an episode and write the next state. Returns the exit status."""
    actions = json_value(arguments.actions, "--actions", list)
    with _environment(arguments) as environment:
        logs: list[Any] = []
        if actions is None:
            raw = agents_of(arguments)
            with environment.runner(environment.initialize_agents(raw)) as runner:
                actions, logs = runner.act()
        state = environment.step(actions, logs)
        write_result(state, arguments.out)
    return AGENT_FAILED if any(agent["status"] in _FAILED for agent in state) else 0


def load(arguments: argparse.Namespace) -> int:
    """Write a saved episode. Returns the exit status."""
    mode = _render_mode(arguments)
    with _environment(arguments) as environment:
        write_result(environment.render(mode), arguments.out)
    return 0


def list_environments(arguments: argparse.Namespace) -> int:
    """Write the names of the environments. Returns the exit status."""
    _import(arguments)
    write_result(environments(), None)
    return 0


def _warn(sentence: str) -> None:
    if sys.stderr is not None:  # None if the process was started with it closed
        print(sentence, file=sys.stderr)


def _environment(arguments: argparse.Namespace) -> Environment:
    """Create the environment from the flags and the file of --in; flags take precedence."""
    _import(arguments)
    found: dict[str, Any] = {}
    path = getattr(arguments, "in_file", None)
    if path is not None:
        found = read_json_file(path, "--in")
        if not isinstance(found, dict):
            raise ValueError(f"--in {path}: expected an episode written by `parllel remote run`")
    steps = json_value(arguments.steps, "--steps", list)
    state = json_value(getattr(arguments, "state", None), "--state", list)
    if state is not None:
        steps = [state]
    logs = found.get("logs")
    if arguments.call.endswith(":load") and arguments.log is not None:
        logs = read_json_file(arguments.log, "--log")
    name = arguments.environment or found.get("name")
    if arguments.environment is None and names_code(str(name)):
        raise ValueError(
            f"--in {path}: environment {name!r}: expected a registered name, not a module or file. If you "
            "trust this name, pass it as --environment"
        )
    if name is None:
        raise ValueError("expected --environment NAME, or --in FILE with an episode")
    return make(
        name,
        json_value(arguments.configuration, "--configuration", dict) or found.get("configuration"),
        info=json_value(arguments.info, "--info", dict) or found.get("info"),
        steps=steps if steps is not None else found.get("steps"),
        logs=logs,
        debug=flag_value(arguments.debug, "--debug"),
        settings=_settings(arguments),
    )


def _settings(arguments: argparse.Namespace) -> AgentSettings:
    return AgentSettings(variables=agent_variables(arguments))


def _import(arguments: argparse.Namespace) -> None:
    for module in arguments.modules:
        import_module_of_user(module)


def _render_mode(arguments: argparse.Namespace) -> str:
    text: str = arguments.render
    if text.startswith("{"):
        text = json_value(text, "--render", dict).get("mode", "json")
    if text not in ("json", "ansi", "html"):
        raise ValueError(f"--render: expected json, ansi or html, got {text!r}")
    return text


def _write_logs(environment: Environment, path: str | None) -> None:
    if path is not None:
        Path(path).write_bytes(json_bytes(environment.logs) + b"\n")


@contextlib.contextmanager
def _progress(episodes: int) -> Iterator[Any]:
    """Show a progress bar for several episodes, if stderr is a terminal."""
    if episodes == 1 or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("episodes", total=episodes)
        yield lambda environment: bar.advance(task)
