"""Settings of operators of the kind "llm", checked before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from parllel.distributed.operators.llm.llm_options import check_number, check_options
from parllel.distributed.operators.llm.provider import provider_named

if TYPE_CHECKING:
    from parllel.distributed.operators.llm.llm_client import LlmClient

UNPARSED = ("error", "random", "first", "noop")
_OF_CLIENT = (
    "model",
    "base_url",
    "provider",
    "timeout_s",
    "retries",
    "token_budget",
    "max_tokens",
    "temperature",
)
# Variable with the tokens already used, which count towards `token_budget`.
USED = "PARLLEL_TOKENS_USED"
_OF_AGENT = ("attempts", "history", "instructions", "unparsed")
# Settings common to all workers of language models.
LLM_SETTINGS = (*_OF_CLIENT, *_OF_AGENT, "api_key_env", "price")


def check_llm_settings(settings: Mapping[str, Any], others: Collection[str] = ()) -> None:
    """Raise ValueError unless a worker can play with these settings.

    others: names of other settings, which the worker accepts and checks itself.
    """
    unknown = sorted(set(settings) - {*LLM_SETTINGS, *others})
    if unknown:
        expected = ", ".join(sorted({*LLM_SETTINGS, *others}))
        raise ValueError(f"expected names from {expected}; got {unknown}")
    check_options(settings)
    for name, least in (("attempts", 0), ("history", 0), ("turns", 1)):
        if name in settings:
            check_number(name, settings[name], f"a whole number of at least {least}", least)
    if not isinstance(settings.get("instructions", ""), str):
        raise ValueError(f"instructions: expected text, got {settings['instructions']!r}")
    if settings.get("unparsed", "random") not in UNPARSED:
        raise ValueError(
            f"unparsed: expected one of {', '.join(UNPARSED)}; got {settings['unparsed']!r}"
        )
    if settings.get("price") is not None:
        price = settings["price"]
        if not isinstance(price, Mapping) or set(price) != {"prompt", "completion"}:
            raise ValueError(
                "price: expected a prompt price and a completion price, each per million tokens, "
                f"got {price!r}"
            )
        for name, value in price.items():
            check_number(f"price: {name}", value, "a number of at least 0", 0, is_whole=False)


def key_variable(settings: Mapping[str, Any]) -> str | None:
    """Return the name of the environment variable that holds the key, or None if no key is sent.

    A provider's default key is sent only to the provider's own server.
    """
    name = settings.get("api_key_env")
    if name is not None:
        return str(name)
    if settings.get("base_url") is not None:
        return None
    return provider_named(settings.get("provider", "openai")).api_key_env


def client_of(settings: Mapping[str, Any], environ: Mapping[str, str]) -> LlmClient:
    """Return a client configured by an operator's settings. The key is read from `environ`.

    environ: environment variables of this process, usually `os.environ`.

    Raises:
        ValueError: for an invalid setting, or a variable that is not set.
    """
    # Imported here: checking settings needs no client.
    from parllel.distributed.operators.llm.llm_client import LlmClient

    check_options(settings)
    options = {name: settings[name] for name in _OF_CLIENT if name in settings}
    variable = key_variable(settings)
    if variable is not None and not environ.get(variable):
        raise ValueError(f"settings: the environment variable {variable} is not set")
    client = LlmClient(**options, api_key=None if variable is None else environ[variable])
    # Set for a worker that continues the episodes of another.
    client.used = int(environ.get(USED, 0))
    return client
