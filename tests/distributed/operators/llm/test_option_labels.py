"""What is short for an action that a prompt offers by a number and a label."""

from __future__ import annotations

import re

import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from parllel.distributed.operators.llm.env_agent import EnvAgent
from parllel.distributed.operators.llm.option_labels import offered_labels, short_names
from parllel.distributed.operators.workers.text_view import TextView
from parllel.policies import env_named

MOVES = {0: "Move left", 1: "Move down", 2: "Move right", 3: "Move up"}


def agent_of(env_id, **settings):
    """Return an agent that has prompted for an environment of gymnasium."""
    view = TextView(env_named(env_id, {}), env_id, {}, prefers_text=True)
    env = view.make()
    agent = EnvAgent(None, settings, view)
    agent.bind(env.observation_space, env.action_space)
    observation, info = env.reset(seed=0)
    agent.prompt(observation, info)
    env.close()
    return agent


def agent_offering(labels):
    """Return an agent whose instructions offer these labels."""
    lines = "\n".join(f"- {number}: {label}" for number, label in labels.items())
    agent = EnvAgent(None, {"instructions": f"The actions are\n{lines}"})
    agent.bind(None, spaces.Discrete(len(labels)))
    agent.prompt(None, {})
    return agent


@pytest.mark.parametrize(
    ("env_id", "answers"),
    [
        (
            "FrozenLake-v1",
            {
                "right": 2,
                "Right.": 2,
                "Action: right": 2,
                "**Action:** Move right": 2,
                "Action: 2: Move right": 2,
                "2: Move right": 2,
                "Action: go to the right": 2,
                "I go up": 3,
                "The hole is below, so I move right.": 2,
                "Action: 2 (right)": 2,
                "Action: 2": 2,
                # Not one thing, or not what it says.
                "left or right": None,
                "right, left": None,
                "not right": None,
                "Action: not right": None,
                "do not move right": None,
                "Don't move right": None,
                "Move left or move right": None,
                "Action: 1: Move right": None,
                "1: Move right": None,
                "Action: 1 (move right)": None,
                "Action: 1 (right)": None,
                "move": None,
                "Action: move": None,
                "The goal is to the right": None,
                "The goal is on my right.": None,
                "upright": None,
            },
        ),
        (
            "CartPole-v1",
            {"left": 0, "Push cart to the right": 1, "to the right": 1, "push cart": None},
        ),
        ("Blackjack-v1", {"hit": 1, "Stick": 0, "hit or stick": None, "not hit": None}),
        (
            "MountainCar-v0",
            {"left": 0, "Don't accelerate": 1, "accelerate": None, "accelerate right": None},
        ),
        # "apply -1 torque" and "apply 1 torque" are the same words.
        ("Acrobot-v1", {"apply 1 torque": None, "torque": None, "Action: 1": 1}),
    ],
)
def test_what_an_environments_documentation_offers_is_understood(env_id, answers):
    agent = agent_of(env_id)
    assert {answer: agent.parse(answer, {}) for answer in answers} == answers


def test_what_instructions_offer_goes_before_documentation():
    agent = agent_of("FrozenLake-v1", instructions="0: west, 1: south, 2: east, 3: north")
    assert [agent.parse(name, {}) for name in ("east", "north", "right")] == [2, 3, None]


def test_names_from_settings_have_short_forms_too():
    agent = EnvAgent(None, {"action_names": ["turn left", "turn right", "pick the ball up"]})
    agent.bind(None, spaces.Discrete(3))
    assert [
        agent.parse(said, {}) for said in ("right", "ball", "turn", "Action: 0: turn right")
    ] == [
        1,
        2,
        None,
        None,
    ]


def test_an_action_that_is_not_legal_now_is_not_understood_as_another():
    agent = agent_offering(MOVES)
    legal = {"legal_actions": [2, 3]}
    said = ("right", "left", "move left or move right", "Action: 0")
    assert [agent.parse(answer, legal) for answer in said] == [2, None, None, None]


@pytest.mark.parametrize(
    ("text", "n", "labels"),
    [
        ("- 0: Move left\n- 1: Move right", 2, {0: "Move left", 1: "Move right"}),
        ("0 = up, 1 = down", 2, {0: "up", 1: "down"}),
        ("`0`: *stay*\n`1`: go", 2, {0: "stay", 1: "go"}),
        ("0: wait, or sleep; 1: go", 2, {0: "wait, or sleep", 1: "go"}),
        ("0: south (down)\n1: north (up)", 2, {0: "south", 1: "north"}),
        ("| 0 | stay | 1 N |\n| 1 | go | 1 N |", 2, {0: "stay", 1: "go"}),
        ("0: left", 2, {}),  # not all
        ("0: left\n1: right\n1: up", 2, {}),  # two for one
        ("0: left\n1: left", 2, {}),  # one for two
        ("It is 10: 30 now", 2, {}),
        ("", 2, {}),
    ],
)
def test_a_list_of_all_actions_is_found(text, n, labels):
    assert offered_labels(text, range(n)) == labels


def test_of_very_many_actions_none_has_a_label():
    assert offered_labels("0: left\n1: right", range(10**12)) == {}


def test_labels_of_other_numbers_than_from_zero():
    assert offered_labels("- -1: back\n- 0: stay\n- 1: on", range(-1, 2)) == {
        -1: "back",
        0: "stay",
        1: "on",
    }


WORDS = ("left", "right", "up", "fire", "jump", "slow", "box", "door")
OTHER = ("or", "not", "and", "never", "move", "the", "wall", ",", "I", "either", "instead of")
LABELS = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(" ".join),
    min_size=2,
    max_size=5,
    unique_by=lambda label: label,
)


@given(LABELS, st.data())
def test_a_short_name_is_a_part_of_one_label_alone(labels, data):
    numbered = dict(enumerate(labels))
    for phrase, number in short_names(numbered).items():
        phrase = re.sub(r"^(?:i )?(?:(?:will |ll )?(?:go|move) )?(?:to the )?", "", phrase)
        having = [n for n, label in numbered.items() if f" {phrase} " in f" {label} "]
        assert having == [number]


@given(LABELS, st.data())
def test_a_label_and_a_word_of_one_label_alone_are_understood(labels, data):
    agent = agent_offering(dict(enumerate(labels)))
    number = data.draw(st.integers(0, len(labels) - 1))
    form = data.draw(
        st.sampled_from(["{}", "Action: {}", "**{}**.", "Thinking.\n{}", "Answer: {}!"])
    )
    assert agent.parse(form.format(labels[number]), {}) == number
    word = data.draw(st.sampled_from(labels[number].split()))
    having = {n for n, label in enumerate(labels) if word in label.split()}
    whole = {n for n, label in enumerate(labels) if label == word}
    expected = whole or having
    found = agent.parse(form.format(word), {})
    assert found == (next(iter(expected)) if len(expected) == 1 else None)


@given(LABELS, st.data())
def test_what_names_two_or_denies_one_is_not_understood(labels, data):
    agent = agent_offering(dict(enumerate(labels)))
    words = [word for word in WORDS if sum(word in label.split() for label in labels) == 1]
    one, two = data.draw(st.permutations([*labels, *words, *labels]))[:2]
    owners = {
        said: {n for n, label in enumerate(labels) if said == label}
        or {n for n, label in enumerate(labels) if said in label.split()}
        for said in (one, two)
    }
    for denial in ("not {}", "Action: not {}", "never {}", "I won't {}", "avoid {}"):
        assert agent.parse(denial.format(one), {}) is None
    if owners[one] != owners[two] and f"{one} or {two}" not in labels:
        for both in ("{} or {}", "either {} or {}", "Action: {}, {}", "{}/{}", "{}? {}"):
            assert agent.parse(both.format(one, two), {}) is None


@given(LABELS, st.lists(st.sampled_from(WORDS + OTHER), min_size=1, max_size=6).map(" ".join))
def test_no_soup_of_words_is_taken_for_an_action_that_it_does_not_name(labels, said):
    found = agent_offering(dict(enumerate(labels))).parse(said, {})
    if found is not None:
        # Some words of the action's own label are there, in a row.
        own = labels[found].split()
        parts = {" ".join(own[i:j]) for i in range(len(own)) for j in range(i + 1, len(own) + 1)}
        assert any(f" {part} " in f" {said.replace(',', ' , ')} " for part in parts)
        # No other label is there as a whole before the first denial, unless within the own one, or within a
        # part that only the own one has: "left box" is "right left box", although "left" is another.
        others = [label for label in labels if label != labels[found]]
        rest = re.split(r"\b(?:not|never|instead of)\b", said)[0]
        for part in sorted(parts, key=len, reverse=True):
            if part == labels[found] or not any(f" {part} " in f" {label} " for label in others):
                rest = re.sub(rf"(?<!\S){re.escape(part)}(?!\S)", "", rest)
        assert not [label for label in others if f" {label} " in f" {rest} "]


def test_labels_that_deny_have_no_short_names():
    names = short_names({0: "do not jump", 1: "run", 2: "left or right"})
    assert names.get("jump") is None
    assert names.get("left") is None
    assert names["run"] == 1
