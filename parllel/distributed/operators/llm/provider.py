"""Known providers of language models."""

from __future__ import annotations

from typing import NamedTuple

from parllel.distributed.operators.llm.chat_protocol import (
    AnthropicProtocol,
    ChatProtocol,
    GeminiProtocol,
    OpenAiProtocol,
)


class Provider(NamedTuple):
    """Address and conventions of a provider.

    Attributes:
        base_url: base URL, to which the path of the protocol is added.
        api_key_env: default name of the environment variable with the key. None if no key is
            needed.
        protocol: its interface.
    """

    base_url: str
    api_key_env: str | None = None
    protocol: ChatProtocol = OpenAiProtocol()


PROVIDERS = {
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", AnthropicProtocol()),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY", GeminiProtocol()
    ),
    "ollama": Provider("http://localhost:11434/v1"),
    # OpenAI's newer models reject "max_tokens"; many other servers know only that name.
    "openai": Provider(
        "https://api.openai.com/v1", "OPENAI_API_KEY", OpenAiProtocol("max_completion_tokens")
    ),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vllm": Provider("http://localhost:8000/v1"),
}


def provider_named(name: object) -> Provider:
    """Return the provider with this name.

    Raises:
        ValueError: for an unknown name.
    """
    if not isinstance(name, str) or name not in PROVIDERS:
        raise ValueError(f"provider: expected one of {', '.join(PROVIDERS)}; got {name!r}")
    return PROVIDERS[name]
