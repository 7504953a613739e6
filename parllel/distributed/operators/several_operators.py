"""Wait for the replies of several operators at once."""

from __future__ import annotations

from collections.abc import Sequence

from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle
from parllel.system.processes.several import await_lines


def await_replies(
    handles: Sequence[OperatorProcessHandle], timeout: float = 5.0
) -> list[OperatorProcessHandle]:
    """Return those operators whose worker has written something, or has ended, once any has.

    `try_read_response(0)` of each then returns its reply, raises, or returns None, if that was a late reply.

    Returns:
        None of them if the time is over, or if `handles` is empty.
    """
    heard = await_lines([handle.process for handle in handles], timeout)
    return [handle for handle in handles if handle.process in heard]
