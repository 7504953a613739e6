"""Language model that plays any environment, or a seat of any game."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.llm.answered import answered, strip_reasoning, written_values
from parllel.distributed.operators.llm.described import (
    described,
    described_actions,
    documentation,
    shown_text,
)
from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.option_labels import offered_labels, short_names, words_of
from parllel.distributed.operators.llm.text_agent import TextAgent
from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.workers.text_view import TextView
from parllel.distributed.operators.workers.worker_agent import Decision

_NUMBERED = re.compile(
    r"\b(?:action|answer|choice|move)(?: is)?[\s*_`\"']*[:=][\s*_`\"'(]*(-?\d+)(.*)", re.IGNORECASE
)
# After a number: it is the first of several, or of a fraction.
_GOES_ON = re.compile(r"[\d.,/\s-]*\d|\s*(?:or|and|to|/|-)\b", re.IGNORECASE)
_MAX_LISTED = 400  # actions listed in a message
_MAX_NAMED = 5000  # action numbers searched for in prose
_FIRST_NUMBER = re.compile(r"[\s*_`\"'(]*(-?\d+)[\s*_`\"')]*[:=)]\s*(.*)")
_OF_ACTIONS = re.compile(
    r"\baction space:(.*?)(?=\n\n(?:description|observation space|rewards):|\Z)",
    re.DOTALL | re.IGNORECASE,
)


class EnvAgent(TextAgent):
    """Shows observations as text, and understands actions given by name, by number or in JSON.

    The text is the environment's own rendering, MiniGrid's own text, or the text of a game. If
    there is none, the observation is described with the names and bounds of its parts.

    Args:
        client, settings: as for a TextAgent. "action_names" names the actions 0, 1, ... of a Discrete space.
        view: shows the environment as text. None for a player of a game.
    """

    def __init__(
        self, client: LlmClient, settings: Mapping[str, Any], view: TextView | None = None
    ) -> None:
        super().__init__(client, settings)
        self._view, self._given_names = view, settings.get("action_names")
        self._names: list[str] | None = None
        self._labels: dict[int, str] = {}
        self._short: dict[str, int] = {}
        self._observation_space: gym.Space[Any] | None = None
        self._given: GivenAction | None = None

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces.

        Raises:
            ValueError: if the number of action names differs from the number of actions.
        """
        super().bind(observation_space, action_space)
        self._observation_space = observation_space
        self._given = None if action_space is None else GivenAction(action_space)
        given, own = self._given_names, None if self._view is None else self._view.names()
        n = int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else 0
        if given is not None and (not isinstance(given, list) or len(given) != n):
            raise ValueError(f"action_names: expected {n} names, one per action, got {given!r}")
        # A wrapper may have fewer actions than the environment names.
        fitting = own if own is not None and len(own) == n else None
        names = fitting if given is None else given
        self._names = None if names is None else [str(name) for name in names]
        self._label({} if names is None else dict(enumerate(self._names or (), self._first())))

    def _label(self, labels: dict[int, str]) -> None:
        self._labels, self._short = labels, short_names(labels)

    def prompt(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the rules: the environment, the actions, and how to answer."""
        parts = [
            "You play step by step: you are shown what there is to see, and choose one action."
        ]
        if "player_id" in info:
            parts[0] = (
                f"You are {info['player_id']} in a game. You are asked for one action at a time."
            )
        if self._view is not None:
            parts.append(documentation(self._view.env))
        parts.append(described_actions(self.action_space) if self._names is None else self._menu())
        parts.append('Answer with one action, alone in the last line, as "Action: ...".')
        text = "\n\n".join(part for part in parts if part)
        if self._names is None and isinstance(self.action_space, gym.spaces.Discrete):
            # Models answer in the words that the text offers, such as "2: Move right".
            actions = range(self._first(), self._first() + int(self.action_space.n))
            offers = (self._instructions, *_OF_ACTIONS.findall(text), text)
            found = (labels for offer in offers if (labels := offered_labels(offer, actions)))
            self._label(next(found, {}))
        return text

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Ask until an answer is understood. Raises as `TextAgent.decide`."""
        legal = self._legal(observation, info)
        return super().decide(
            observation, info if legal is None else {**info, "legal_actions": legal}
        )

    def describe(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the text of the environment or game, or the observation, and the legal actions."""
        text = info.get("text") if self._view is None else self._view.text()
        if text is None:
            shown = described(self._observation_space, observation)
        else:
            shown = shown_text(text)
        legal = info.get("legal_actions") or []
        if not 0 < len(legal) <= _MAX_LISTED:
            return shown
        return f"{shown}\nLegal actions: {', '.join(map(self.name_of, legal))}"

    def parse(self, text: str, info: Mapping[str, Any]) -> Any:
        """Return the legal action that an answer names, or None if it names none or several."""
        legal, space = info.get("legal_actions") or None, self.action_space
        if isinstance(space, gym.spaces.Discrete):
            found = self._named(text, range(int(space.start), int(space.start + space.n)))
            return found if legal is None or found in legal else None
        if space is None and legal and all(isinstance(action, int) for action in legal):
            return self._named(text, legal)
        return self._written(text, legal)

    def correction(self, text: str, info: Mapping[str, Any]) -> str:
        """Return a message that explains what kind of answer was expected."""
        legal = info.get("legal_actions") or ()
        names = [self.name_of(action) for action in legal[:_MAX_LISTED]] or self._names
        expected = described_actions(self.action_space)
        if names is not None and len(legal) <= _MAX_LISTED:
            expected = f"Answer with one of: {', '.join(names)}."
        return f"That does not name exactly one legal action. {expected}"

    def shown_action(self, action: Any) -> Any:
        """Return an action as JSON values."""
        if self._given is None:
            return super().shown_action(action)
        return self._given.to_json(self._given.of(action))

    def name_of(self, action: Any) -> str:
        """Return the name of an action, or its number or JSON if it has none."""
        shown = self.shown_action(action)
        if self._names is None:
            return json.dumps(shown)
        return self._names[int(shown) - self._first()]

    # ------------------------------------------------------------------ parsing of answers

    def _named(self, text: str, actions: Sequence[int]) -> int | None:
        """Return the action that prose names.

        A number or a short name counts as a whole answer, or after "action". If both occur they must agree.
        """
        numbers = {str(action): action for action in actions[:_MAX_NAMED]}
        named = {f"action {action}": action for action in actions[:_MAX_LISTED]}
        named.update((label, action) for action, label in self._labels.items())
        words = {short: action for short, action in self._short.items() if " " not in short}
        found = answered(text, named, {**self._short, **numbers}, words)
        text = strip_reasoning(text)
        labelled = _NUMBERED.findall(text)
        if found is None and self._names is None and labelled:
            # "Action: 2 (to the right)", where the prose contains no name.
            digits, rest = labelled[-1]
            number, others = numbers.get(digits), self._mentioned(rest)
            return None if _GOES_ON.match(rest) or (others and number not in others) else number
        if found is not None and not re.search(r"\d", self._labels.get(found, "0")):
            # "1: Move right", where that is action 2: a contradiction.
            first = _FIRST_NUMBER.match(text.strip().rpartition("\n")[2])
            digits = labelled[-1][0] if labelled else first[1] if first is not None else ""
            return found if numbers.get(digits) in (None, found) else None
        return found

    def _mentioned(self, text: str) -> set[int]:
        """Return the actions whose short name is a word of a text."""
        return {self._short[word] for word in words_of(text) if word in self._short}

    def _written(self, text: str, legal: Sequence[Any] | None) -> Any:
        """Return the last action that is written in JSON."""
        values = written_values(text)
        numbers = [value for value in values if isinstance(value, (int, float))]
        if values == numbers:
            values = [*numbers, numbers]  # a list without its brackets
        for value in reversed(values):
            action = self._action_of(value)
            if action is not None and (legal is None or value in legal):
                return action
        return None

    def _action_of(self, values: Any) -> Any:
        if self._given is None:
            return values
        try:
            return self._given.from_json(values)
        except ValueError:
            return None

    def _legal(self, observation: Any, info: Mapping[str, Any]) -> list[Any] | None:
        """Return the legal actions given by a game, or by an environment's mask; None if there are none."""
        if info.get("legal_actions"):
            return list(info["legal_actions"])
        space = self.action_space
        if not isinstance(space, gym.spaces.Discrete):
            return None
        within = observation if isinstance(observation, Mapping) else {}
        mask = np.asarray(info.get("action_mask", within.get("action_mask", ())))
        if mask.shape != (space.n,):
            return None
        return [int(i) + self._first() for i in np.flatnonzero(mask)]

    def _menu(self) -> str:
        return f"Actions: {', '.join(self._names or ())}."

    def _first(self) -> int:
        return int(getattr(self.action_space, "start", 0))
