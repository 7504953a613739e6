"""Servers of language models whose URLs are known."""

from __future__ import annotations

from typing import NamedTuple


class Provider(NamedTuple):
    """Where a provider is asked.

    Attributes:
        base_url: of its interface, to which "/chat/completions" is added.
        api_key_env: the variable that has the key by default; None if none is needed.
        limit: the name of the limit of tokens in a request.
    """

    base_url: str
    api_key_env: str | None = None
    limit: str = "max_tokens"


PROVIDERS = {
    "ollama": Provider("http://localhost:11434/v1"),
    # Its newer models refuse "max_tokens"; many other servers know no other name.
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "max_completion_tokens"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vllm": Provider("http://localhost:8000/v1"),
}


def provider_named(name: object) -> Provider:
    """Return a provider.

    Raises:
        ValueError: if there is none of this name.
    """
    if not isinstance(name, str) or name not in PROVIDERS:
        raise ValueError(f"provider: expected one of {', '.join(PROVIDERS)}; got {name!r}")
    return PROVIDERS[name]
