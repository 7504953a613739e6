"""What tests of language models share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

KEY = "sk-secret-0123456789/abc"
HELLO = [{"role": "user", "content": "hello there"}]


@contextmanager
def scripted(*rules: Rule, **options: Any) -> Iterator[tuple[LlmClient, ScriptedServer]]:
    """Yield a client, and the server that it asks, which answers by rules."""
    given = {"api_key": KEY, "timeout_s": 10.0, **options}
    with (
        ScriptedServer(rules) as server,
        LlmClient("any", base_url=server.base_url, **given) as client,
    ):
        yield client, server


def refused(client: LlmClient, match: str) -> LlmError:
    """Return the error of a question, whose text has to match."""
    with pytest.raises(LlmError, match=match) as raised:
        client.chat(HELLO)
    return raised.value
