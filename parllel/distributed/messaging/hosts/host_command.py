"""The command `parllel messaging host`, which runs agents of a hierarchy for a run elsewhere."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from parllel.distributed.messaging.agent import Agent
from parllel.distributed.messaging.hosts.agent_host import AgentHost
from parllel.distributed.messaging.kafka.tap_command import read_properties
from parllel.distributed.web.token_file import read_token
from parllel.runs.reference import import_script
from parllel.runs.state_file import load_state, save_state
from parllel.system.raised_signals import RaisedSignals

KEY_VARIABLE = "PARLLEL_MESSAGING_KEY"


def host(arguments: argparse.Namespace) -> int:
    """Run agents until the environment side closes, or Ctrl-C. Returns the exit status."""
    # As Ctrl-C, so that states are saved and the host leaves the run.
    errors = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: KeyboardInterrupt}
    with RaisedSignals(errors) as signals:
        return _host(arguments, signals)


def _host(arguments: argparse.Namespace, signals: RaisedSignals) -> int:
    factory = factory_named(arguments.factory)
    path = arguments.states
    states = load_state(path) if path is not None and os.path.exists(path) else None
    with AgentHost(
        factory,
        arguments.agents,
        bootstrap=arguments.bootstrap,
        run=arguments.run,
        envs=arguments.env_id or ("*",),
        name=arguments.name,
        timeout_s=arguments.timeout,
        wait_s=arguments.wait,
        stay=arguments.stay,
        states=states,
        partitions=arguments.partitions,
        key=read_token(arguments.key_file, KEY_VARIABLE),
        config=read_properties(arguments.config) if arguments.config else None,
    ) as running:
        print(
            f"host {running.name!r} serves {', '.join(arguments.agents)} for run {arguments.run!r}",
            file=sys.stderr,
            flush=True,
        )
        try:
            running.serve(signals.check)
        except KeyboardInterrupt:  # the usual way to end it
            pass
        finally:
            if path is not None:
                save_state(path, running.state())
    return 0


def factory_named(name: str) -> Callable[[str], Mapping[str, Agent]]:
    """Return the function of a name "module:function" or "file.py:function". Executes its code.

    Raises:
        ValueError: if the name has another form, or there is no such function.
        FileNotFoundError, ImportError: if there is no such file or module.
    """
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function:
        raise ValueError(f"expected module:function or file.py:function, got {name!r}")
    if module.endswith(".py"):
        if not os.path.isfile(module):
            raise FileNotFoundError(f"{module}: there is no such file")
        found = getattr(import_script(Path(module)), function, None)
    else:
        # As `python -m` does, whose first place to look is the current folder.
        sys.path.insert(0, os.getcwd())
        found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise ValueError(f"{module}: it defines no function {function!r}")
    factory: Callable[[str], Mapping[str, Agent]] = found
    return factory
