"""Language models as operators::

    worker    TextAgent      describe -> messages -> parse; corrections, and what is played without an answer
              LlmClient      chat: time-outs, retries, budget; keys stay here; asks by web's HttpClient
    server    any that answers POST /chat/completions as OpenAI's does; ScriptedServer, to try it without one

Nothing is imported here: a worker imports the modules that it needs.
"""

from __future__ import annotations

__all__ = []
