"""Trust in run folders: whether operators may execute their scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable

from parllel.distributed.operators.protocol.multi_agent_config import AnyConfig, operators_of
from parllel.runs.trust import check_source


def check_runs(operators: Iterable[AnyConfig], *, trusted: bool) -> None:
    """Check that the scripts of all run folders among the operators' policies may be executed.

    Raises:
        ValueError: for a script that is not trusted. The message names it and explains how to allow
            it.
    """
    for config in operators_of(operators):
        policy = config.policy
        if policy is not None and os.path.isfile(os.path.join(policy, "run.json")):
            check_source(policy, trusted=trusted)
