from __future__ import annotations

import json
import math
import re
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.distributed.operators import MessageError
from parllel.distributed.operators.protocol import messages
from parllel.distributed.operators.protocol.message_lines import (
    read_command,
    read_reply,
    write_command,
    write_reply,
)
from parllel.distributed.operators.protocol.messages import (
    EpisodeEndReply,
    ReadyReply,
    ResetCommand,
    SelectActionCommand,
    StepCommand,
    StepReply,
)

INTS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | INTS | FLOATS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


def values_of(hint):
    """Return values of a field's type, those that are left out included."""
    if isinstance(hint, msgspec.inspect.UnionType):
        return st.one_of([values_of(part) for part in hint.types])
    kinds = msgspec.inspect
    if isinstance(hint, kinds.IntType) and hint.ge is not None:
        return st.integers(hint.ge, 2**70)
    return {
        kinds.IntType: INTS,
        kinds.FloatType: FLOATS,
        kinds.StrType: TEXTS,
        kinds.BoolType: st.booleans(),
        kinds.NoneType: st.none(),
        kinds.AnyType: VALUES,
        kinds.LiteralType: st.sampled_from(["png", "rgb"]),
        kinds.ListType: st.lists(TEXTS, max_size=3),
        kinds.DictType: st.dictionaries(TEXTS, VALUES, max_size=3),
    }[type(hint)]


def messages_of(kind):
    fields = {}
    for field in msgspec.inspect.type_info(kind).fields:
        values = values_of(field.type)
        if not field.required:
            values = st.just(msgspec.UNSET) | values
        fields[field.name] = st.just(msgspec.UNSET) if field.name == "rgb_array" else values
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


COMMANDS = st.one_of([messages_of(kind) for kind in messages.Command.__subclasses__()])
REPLIES = st.one_of([messages_of(kind) for kind in get_args(messages.AnyReply)])


@given(COMMANDS)
def test_commands_are_read_as_they_were_written(command):
    line = write_command(command)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert read_command(line) == command
    # Any reader of JSON finds the same.
    assert json.loads(line)["cmd"] == command.__struct_config__.tag


@given(REPLIES)
def test_replies_are_read_as_they_were_written(reply):
    line = write_reply(reply)
    assert b"\n" not in line[:-1]
    found = read_reply(line)
    assert found.pop("type") == reply.__struct_config__.tag
    fields = {name: getattr(reply, name) for name in reply.__struct_fields__}
    payload = fields.get("render_payload")
    if isinstance(payload, dict) and {"rgb", "rgb_array", "mode"} & set(payload):
        return  # names of frames are brought to ours
    assert found == {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def test_the_messages_of_the_documents_are_these():
    assert write_command(ResetCommand(seed=42)) == b'{"cmd":"reset","seed":42}\n'
    assert write_command(ResetCommand(seed=None, id=1)) == b'{"cmd":"reset","seed":null,"id":1}\n'
    assert write_command(StepCommand()) == b'{"cmd":"step"}\n'
    step = StepReply(
        step_index=5, action=2, reward=0.0, terminated=False, truncated=False, episode_reward=0.0
    )
    assert write_reply(step) == (
        b'{"type":"step","step_index":5,"action":2,"reward":0.0,"terminated":false,'
        b'"truncated":false,"episode_reward":0.0}\n'
    )
    ready = ReadyReply(run_id="r", env_id="e", seed=1, observation_shape=[7, 7, 3], protocol=1)
    assert json.loads(write_reply(ready)) == {
        "type": "ready",
        "run_id": "r",
        "env_id": "e",
        "seed": 1,
        "observation_shape": [7, 7, 3],
        "protocol": 1,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # As workers elsewhere write it.
        (
            b'{"type":"episode_done","total_reward":1,"episode_length":2,"terminated":true,'
            b'"truncated":false,"lesson":[1]}',
            {
                "type": "episode_end",
                "total_reward": 1.0,
                "episode_length": 2,
                "terminated": True,
                "truncated": False,
            },
        ),
        (b'{"type":"agent_initialized"}', {"type": "agent_ready"}),
        (b'{"type":"agent_ready","player_id":"a","id":3}', None),
        (b' {"type" : "stopped" }\r', {"type": "stopped"}),
        (b'{"type":"ready","seed":null}', {"type": "ready", "seed": None}),
        (b'{"type":"error","message":"\\u00e9","code":3}', {"type": "error", "message": "\xe9"}),
    ],
)
def test_reading_is_lenient(line, expected):
    assert read_reply(line) == (json.loads(line) if expected is None else expected)


STEP = {
    "type": "step",
    "step_index": 1,
    "action": 0,
    "reward": 0,
    "terminated": False,
    "truncated": False,
    "episode_reward": 0,
}
RGB = [[[1, 2, 3], [4, 5, 6]]]
FRAME = {"mode": "rgb", "rgb": RGB, "width": 2, "height": 1}


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"render_payload": {**FRAME, "dpi": 3}}, {**FRAME, "dpi": 3}),
        ({"render_payload": {"mode": "rgb_array", "rgb": RGB}}, FRAME),
        ({"render_payload": {"mode": "rgb_array", "rgb_array": RGB}}, FRAME),
        ({"rgb_array": RGB}, FRAME),
        ({"rgb_array": RGB, "render_payload": None}, FRAME),
        ({"render_payload": None}, None),
        ({"render_payload": "later"}, "later"),
    ],
)
def test_frames_are_read_under_other_names(fields, payload):
    found = read_reply(json.dumps({**STEP, **fields}).encode())
    assert found["render_payload"] == payload
    assert "rgb_array" not in found
    assert type(found["reward"]) is type(found["episode_reward"]) is float


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"hello", "expected a line of JSON, got 'hello'"),
        (b'{"type":"step"}', "step: Object missing required field `step_index`"),
        (b'{"type":"steps","id":1}', "unknown reply 'steps'; expected one of action_selected,"),
        (b'{"kind":"step"}', 'expected an object with "type"'),
        (json.dumps({**STEP, "reward": "1"}).encode(), "step: Expected `float`, got `str`"),
        (json.dumps({**STEP, "reward": math.nan}).encode(), "expected a line of JSON"),
        (b'{"type":"ready","x":' + b'{"a":' * 100_000, "nested too deeply"),
        (
            b'{"type":"error","message":' + b"1" * 1000 + b"}",
            "error: Number out of range - at `$.message`",
        ),
    ],
)
def test_what_is_no_reply_is_said_in_a_sentence(line, message):
    with pytest.raises(MessageError, match=re.escape(message)) as caught:
        read_reply(line)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "message",
    [
        StepCommand(action=math.nan),
        SelectActionCommand(player_id="a", observation=[[0.0, [math.inf]]]),
        SelectActionCommand(player_id="a", observation={"x": np.array([np.nan])}),
        SelectActionCommand(player_id="a", observation=object()),
        EpisodeEndReply(total_reward=-math.inf, episode_length=1, terminated=True, truncated=False),
        messages.ErrorReply(message="\ud800"),
    ],
)
def test_what_json_has_not_is_not_written(message):
    with pytest.raises(MessageError, match="expected values that JSON can hold"):
        write_reply(message)


def test_null_and_the_word_null_are_written():
    message = SelectActionCommand(player_id="null", observation=[None, "null"], legal_actions=None)
    assert read_command(write_command(message)) == message


def test_numbers_of_numpy_are_written_as_pythons():
    message = SelectActionCommand(
        player_id="a",
        observation={"x": np.float32([1, 2])},
        legal_actions=[np.int64(1), 2],
        info={"mask": np.array([True])},
    )
    assert json.loads(write_command(message)) == {
        "cmd": "select_action",
        "player_id": "a",
        "observation": {"x": [1.0, 2.0]},
        "legal_actions": [1, 2],
        "info": {"mask": [True]},
    }
