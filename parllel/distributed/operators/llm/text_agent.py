"""Agent that asks a language model: turns observations into text, and answers into actions.

describe(observation, info)      --> the user's message
prompt, messages                 --> rules, the last turns, this message
parse(answer, info)              --> an action; None: correction(answer, info), and the model is asked again
all attempts used                --> the rule `unparsed`: an error, or a substitute action
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.llm.answer import Answer, prompts_of, spent_on
from parllel.distributed.operators.llm.answered import finished_part
from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.unparsed import unparsed_action
from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.seeding import Seeds

_HISTORY, _ATTEMPTS = 8, 2
_BETWEEN = "\n---\n"  # between the answers of one decision, in `raw`
_WAS_CUT = "Your answer was cut at the limit of tokens. Give a shorter one. "
_NO_TEXT = "Your answer had no text. "
_SILENCE = "(no text)"  # in dialogues: some servers reject messages without content


class TextAgent(WorkerAgent):
    """Agent that chooses actions by the answers of a language model.

    Args:
        client: client that sends the questions. `close` closes it.
        settings: settings of the operator. The agent uses "history" (turns shown), "instructions"
            (text put first), "attempts" (corrections per decision) and "unparsed". The last is the
            rule for answers that were not understood: "error", "random" (derived from the episode's
            seed), "first" or "noop".
    """

    def __init__(self, client: LlmClient, settings: Mapping[str, Any]) -> None:
        self._client = client
        self._instructions = str(settings.get("instructions", ""))
        self._attempts = int(settings.get("attempts", _ATTEMPTS))
        self.unparsed = str(settings.get("unparsed", "random"))
        self._history: deque[tuple[str, str]] = deque(maxlen=settings.get("history", _HISTORY))
        self.generator = np.random.default_rng()
        self._note = ""
        self._rules: str | None = None
        self.action_space: gym.Space[Any] | None = None

    # ------------------------------------------------------------------ for each kind of environment

    @abstractmethod
    def describe(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Describe an observation as text."""

    @abstractmethod
    def parse(self, text: str, info: Mapping[str, Any]) -> Any:
        """Return the legal action that an answer names, or None."""

    def prompt(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the rules, which are put after the instructions.

        Called at the first decision of an episode.
        """
        return ""

    def correction(self, text: str, info: Mapping[str, Any]) -> str:
        """Return the message for an answer that was not understood."""
        return "That names no legal action. Answer with one, and nothing else."

    def instead(self, text: str, info: Mapping[str, Any]) -> Any:
        """Return the substitute action if no answer was understood.

        Raises:
            LlmError: if the setting "unparsed" is "error".
        """
        legal = info.get("legal_actions")
        return unparsed_action(self.unparsed, self.action_space, legal, self.generator, text)

    def shown_action(self, action: Any) -> Any:
        """Return an action as JSON values, for `parsed`."""
        return action.tolist() if hasattr(action, "tolist") else action

    def name_of(self, action: Any) -> str:
        """Return the name under which the model knows an action."""
        return str(self.shown_action(action))

    # ------------------------------------------------------------------ the WorkerAgent

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces."""
        self.action_space = action_space

    def reset(self, seed: int | None) -> None:
        """Forget the turns of the previous episode, and restart the random stream if a seed is given."""
        self._history.clear()
        self._note, self._rules = "", None
        if seed is not None:
            self.generator = Seeds(seed).generator("unparsed")

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Ask until an answer is understood, or all attempts are used.

        Raises:
            LlmError: if the server does not answer, or if no answer was understood and "unparsed"
                is "error".
        """
        shown = self._note + self.describe(observation, info)
        if self._rules is None:
            self._rules = self.prompt(observation, info)
        dialogue = self.messages(shown)
        turns = 2 * len(self._history)
        answers: list[Answer] = []
        understood = None
        try:
            action = self._ask(dialogue, info, answers)
            understood = action is not None
            if not understood:
                action = self.instead(answers[-1].text, info)
        except LlmError as error:
            # Whatever failed, the answers so far were paid for: the error carries them into the records.
            answers += [] if error.answer is None else [error.answer]
            if answers:
                error.decision = _decision(None, answers, understood, _without(turns, dialogue))
            raise
        self._history.append((shown, answers[-1].text))
        played = f"(Not understood; {self.name_of(action)} was played.)\n"
        self._note = "" if understood else played
        parsed = self.shown_action(action) if understood else None
        return _decision(action, answers, understood, _without(turns, dialogue), parsed)

    def _ask(
        self, dialogue: list[dict[str, str]], info: Mapping[str, Any], answers: list[Answer]
    ) -> Any:
        """Return the action of the first answer that is understood, or None after all attempts.

        dialogue, answers: extended by each answer.
        """
        for attempt in range(self._attempts + 1):
            answer = self._client.chat(dialogue)
            answers.append(answer)
            text = answer.text
            action = self.parse(finished_part(text) if answer.is_cut else text, info)
            if action is not None or attempt == self._attempts:
                return action
            problem = _WAS_CUT if answer.is_cut else "" if text.strip() else _NO_TEXT
            correction = problem + self.correction(text, info)
            dialogue += [_message("assistant", text), _message("user", correction)]
        return None

    def messages(self, shown: str) -> list[dict[str, str]]:
        """Return the dialogue that ends with the current observation."""
        first = "\n\n".join(part for part in (self._instructions, self._rules) if part)
        dialogue = [_message("system", first)] if first else []
        for shown_before, answer in self._history:
            dialogue += [_message("user", shown_before), _message("assistant", answer)]
        return [*dialogue, _message("user", shown)]

    def close(self) -> None:
        """Close the client. Idempotent."""
        self._client.close()


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content or _SILENCE}


def _without(turns: int, dialogue: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return a dialogue without the messages of earlier turns, which the records of their steps have."""
    first = dialogue[:1] if dialogue[0]["role"] == "system" else []
    return [*first, *dialogue[len(first) + turns :]]


def _decision(
    action: Any,
    answers: list[Answer],
    understood: bool | None,
    dialogue: list[dict[str, str]],
    parsed: Any = None,
) -> Decision:
    raw = _BETWEEN.join(answer.text for answer in answers)
    spent = spent_on(answers)
    return Decision(
        action, raw, parsed, understood=understood, prompts=prompts_of(dialogue), **spent
    )
