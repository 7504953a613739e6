"""Language models as operators::

    worker    TextAgent      describe -> messages -> parse; corrections, and a substitute without an answer
              LlmClient      chat: timeouts, retries, budget; keeps the key; sends by web's HttpClient
    server    any with OpenAI's POST /chat/completions; ScriptedServer, to try operators without one

Nothing is imported here: each worker imports the modules that it needs.
"""

from __future__ import annotations

__all__ = []
