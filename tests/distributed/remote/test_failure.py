from __future__ import annotations

import pytest

from parllel.distributed.remote import AgentFailure


def test_a_reason_is_one_short_line():
    failure = AgentFailure("ERROR", "no\nway\r\n" + "x" * 5000)
    assert failure.reason.startswith("no way xxx")
    assert len(failure.reason) == 1000


def test_a_reason_can_be_sent_by_any_wire():
    failure = AgentFailure("ERROR", "half \ud800 of a pair")
    assert failure.reason == "half \\ud800 of a pair"


def test_other_statuses_are_refused():
    with pytest.raises(ValueError, match="status: expected ERROR, TIMEOUT or INVALID, got 'DONE'"):
        AgentFailure("DONE", "")
