"""Language model that plays MiniGrid and BabyAI by a description of what the agent sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.llm.answered import answered
from parllel.distributed.operators.llm.minigrid_view import check_view, describe_view
from parllel.distributed.operators.llm.text_agent import TextAgent

# By number: name, effect, alternative names, and short names. Short ones count only as a whole answer, as
# they are frequent in sentences about the view.
_ACTIONS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("turn left", "turn by a quarter to the left", ("turning left",), ("left",)),
    ("turn right", "turn by a quarter to the right", ("turning right",), ("right",)),
    (
        "go forward",
        "take one step ahead, if nothing is in the way",
        ("going forward", "move forward", "moving forward", "step forward"),
        ("forward",),
    ),
    ("pick up", "take the thing right in front of you", ("pickup", "picking up"), ()),
    ("drop", "put what you carry right in front of you", ("dropping",), ()),
    (
        "toggle",
        "open or close the door right in front of you, or open the box there; a locked door needs the key "
        "of its colour",
        ("toggling",),
        (),
    ),
    ("done", "say that the mission is accomplished", (), ()),
)


class MiniGridAgent(TextAgent):
    """Shows the agent's view, its mission and the action names. Each answer names one action.

    The arguments are the same as for a TextAgent.
    """

    _names: tuple[str, ...] = ()

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces.

        Raises:
            TypeError, ValueError: if the spaces are not those of a MiniGrid environment.
        """
        super().bind(observation_space, action_space)
        parts = getattr(observation_space, "spaces", {})
        if not {"image", "mission"} <= set(parts):
            raise TypeError(
                "balrog_worker: expected observations of MiniGrid or BabyAI, with image and mission, got "
                f"{observation_space}; use operators_worker for other environments"
            )
        check_view(parts["image"].shape)
        if (
            not isinstance(action_space, gym.spaces.Discrete)
            or action_space.start
            or not 1 <= action_space.n <= len(_ACTIONS)
        ):
            raise TypeError(
                f"balrog_worker: expected MiniGrid's actions, Discrete({len(_ACTIONS)}), or only "
                f"the first of these actions, got {action_space}"
            )
        actions = _ACTIONS[: int(action_space.n)]
        self._names = tuple(name for name, *_ in actions)
        self._named = {
            word: i for i, (name, _, others, _) in enumerate(actions) for word in (name, *others)
        }
        self._brief = {word: i for i, (*_, short) in enumerate(actions) for word in short}

    def prompt(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the rules: the world and the actions."""
        actions = "\n".join(f"{name}: {does}" for name, does, *_ in _ACTIONS[: len(self._names)])
        return (
            "You act in a world of square cells, of which you see those in front of you. Your mission is: "
            f"{observation['mission']}\n\nIn each turn you choose one of these actions:\n{actions}\n\n"
            "Answer with the name of one action, alone in the last line."
        )

    def describe(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the mission and the agent's view."""
        view = describe_view(observation["image"], observation.get("direction"))
        return f"Mission: {observation['mission']}\n{view}"

    def parse(self, text: str, info: Mapping[str, Any]) -> int | None:
        """Return the number of the only action that an answer names, or None."""
        return answered(text, self._named, self._brief)

    def correction(self, text: str, info: Mapping[str, Any]) -> str:
        """Return the message for an answer that names no single action."""
        return (
            f"That does not name exactly one action. Answer with one of: {', '.join(self._names)}."
        )

    def instead(self, text: str, info: Mapping[str, Any]) -> Any:
        """Return the substitute action for an answer that was not understood.

        The rule "noop" plays the action "done", which changes nothing.
        """
        if self.unparsed == "noop" and "done" in self._names:
            return self._names.index("done")
        return super().instead(text, info)

    def shown_action(self, action: Any) -> str:
        """Return the name of an action."""
        return self._names[int(action)]
