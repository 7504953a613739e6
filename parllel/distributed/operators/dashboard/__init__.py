"""Server of the dashboard: a board of operators as REST, WebSocket and a page.

Dashboard     the server of a board: who may connect, where it listens, how it ends
BoardRoutes   REST: commands to the board, and its refusals
Viewers       WebSocket: the board's state and frames, for any number of pages

All state is the board's. Pages and programs can rely on the contract in docs/operators_dashboard.md.

Raises:
    ImportError: if the extra `operators` is not installed.
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
