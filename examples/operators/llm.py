"""Compare a language model with random actions on the frozen lake.

parllel operators run examples/operators/llm.py
parllel operators run examples/operators/llm.py --set model=gpt-5-mini --set provider=openai
parllel operators run examples/operators/llm.py --set model=qwen3 --set provider=ollama

Without a model, a server in this process answers at random. The API key is read from OPENAI_API_KEY, or the
provider's variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from parllel.distributed.operators import Experiment, OperatorConfig, ScriptedServer

LAKE = "FrozenLake-v1"


@contextmanager
def experiment(model: str = "", provider: str = "", n_seeds: int = 20) -> Iterator[Experiment]:
    """Yield the experiment, with the server running meanwhile if needed."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"model": model or "random-answers", "timeout_s": 30.0}
        if provider:
            settings["provider"] = provider
        else:
            settings["base_url"] = stack.enter_context(ScriptedServer()).base_url
        # Price of a million tokens, in any currency, for the cost in the results.
        settings["price"] = {"prompt": 0.25, "completion": 2.0}
        lake: dict[str, Any] = {"env_kwargs": {"is_slippery": False}, "max_steps": 30}
        operators = [
            OperatorConfig("llm", "model", LAKE, settings=settings, **lake),
            OperatorConfig("baseline", "random", LAKE, policy="random", **lake),
        ]
        yield Experiment("llm", operators, seeds=range(n_seeds), success=1.0)
