"""The command `parllel operators dashboard`: serves a board until a signal."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack

from parllel.distributed.operators.board.board import Board
from parllel.distributed.operators.dashboard.dashboard import Dashboard
from parllel.distributed.operators.experiments.experiment_file import load_experiment
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.distributed.operators.trusted_runs import check_runs
from parllel.distributed.web.address import check_address
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_file import read_token


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        token=None if arguments.token_file is None else read_token(arguments.token_file),
        allowed_hosts=tuple(arguments.allow_host),
    )
    # Before the folder is created and workers are started: a port in use is reported at once.
    check_address(settings)
    with ExitStack() as stack:
        board = stack.enter_context(
            Board(
                _operators(stack, arguments),
                base=arguments.dir,
                folder=arguments.board,
                scripts=arguments.files,
                trusted=arguments.trust,
            )
        )
        dashboard = Dashboard(board, base=arguments.dir, trusted=arguments.trust, settings=settings)
        # Registered instead of entered: `__enter__` would start it in a thread.
        stack.callback(dashboard.close)

        def started() -> None:
            print(f"board: {board.folder}")
            dashboard.announce()
            if arguments.open:
                webbrowser.open(dashboard.login_url)

        dashboard.run(started)
    return 0


def _operators(
    stack: ExitStack, arguments: argparse.Namespace
) -> Sequence[OperatorConfig | MultiAgentConfig]:
    """Return the operators of the script, if there is exactly one and no board to continue."""
    if len(arguments.files) != 1 or arguments.board is not None:
        return ()
        # What the script has started is closed after the board.
    experiment = stack.enter_context(load_experiment(arguments.files[0]))
    check_runs(experiment.operators, trusted=arguments.trust)
    return experiment.operators
