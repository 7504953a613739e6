"""One line for each request, without queries and headers: those hold secrets."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

_LOGGER = logging.getLogger("parllel.distributed.web.access")
_LOGGER.setLevel(logging.INFO)
_LONGEST = 200  # characters of a path


def log_access(scope: Mapping[str, Any], status: int | None, begun: float) -> None:
    """Log the client's address, verb, path, status and milliseconds.

    status: None if the client has gone.
    begun: of `time.perf_counter`.
    """
    path = scope["raw_path"].decode("latin-1")
    # One that names a server may hold a password.
    shown = path[:_LONGEST] if path.startswith("/") else "-"
    _LOGGER.info(
        "%s %s %s %s %.1f ms",
        scope["client"][0] if scope["client"] else "-",
        scope["method"][:_LONGEST],
        shown,
        "gone" if status is None else status,
        (time.perf_counter() - begun) * 1e3,
    )
