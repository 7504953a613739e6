"""How agents reach each other."""

from __future__ import annotations

from enum import Enum


class ExecutionMode(str, Enum):
    """How a parent reaches its subordinates.

    SYNC: it calls them and waits for what they return; no broker is needed.
    ASYNC: by messages alone, hop by hop. Both give the same rollouts.
    """

    SYNC = "sync"
    ASYNC = "async"
