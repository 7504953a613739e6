"""The dashboard's server: a board of operators as REST, WebSocket and a page.

Dashboard     the server of a board: who may connect, where it listens, how it ends
BoardRoutes   REST: commands to the board, and which it refuses
Viewers       WebSocket: the board's state and frames, for as many pages as look at it

All state is the board's. docs/operators_dashboard.md is the contract that a page, or a program, can rely on.

Raises:
    ImportError: if what the extra `operators` installs is missing.
"""

from parllel.errors import install_command as _install_command

try:
    import h11 as _h11  # noqa: F401
    import websockets as _websockets  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("h11", "websockets"):
        raise
    raise ImportError(
        f"parllel.distributed.operators.dashboard needs {error.name}: {_install_command('operators')}"
    ) from error


__all__: list[str] = []
