from __future__ import annotations

import base64
import io

import gymnasium as gym
import numpy as np
import pytest
from asked_runtime import Counting, Deciding, ask, error_of, runtime_of
from gymnasium import spaces
from PIL import Image

from parllel.distributed.operators import Decision
from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime
from parllel.seeding import Seeds

RESET, STEP = {"cmd": "reset", "seed": 5}, {"cmd": "step"}


def step(index, action, reward, total, *, terminated=False, truncated=False, **more):
    return {
        "type": "step",
        "step_index": index,
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "episode_reward": total,
        **more,
    }


def test_an_episode_is_told_step_by_step():
    agent = Deciding([Decision(2, "two", {"n": 2}, 7), Decision(np.int64(0))])
    runtime, env, _ = runtime_of(agent=agent, run_id="r", env_id="Counting-v0")
    assert ask(runtime, RESET) == [
        {
            "type": "ready",
            "run_id": "r",
            "env_id": "Counting-v0",
            "seed": 5,
            "observation_shape": [2],
            "protocol": 1,
            "action_space": {"text": "Discrete(3)", "n": 3, "start": 0},
        }
    ]
    assert ask(runtime, {**STEP, "id": 8}) == [
        step(1, 2, 1.0, 1.0, raw="two", parsed={"n": 2}, tokens=7, id=8)
    ]
    assert ask(runtime, STEP) == [step(2, 0, 0.5, 1.5)]
    assert ask(runtime, {**STEP, "id": "last"}) == [
        step(3, 1, 2.0, 3.5, terminated=True, id="last"),
        {
            "type": "episode_end",
            "id": "last",
            "total_reward": 3.5,
            "episode_length": 3,
            "terminated": True,
            "truncated": False,
            "success": True,
        },
    ]
    # What was decided on is what the environment had shown before; it was given what its space samples.
    assert agent.seen == [[0, 3], [1, 3], [2, 3]]
    assert env.taken == [2, 0, 1]
    assert {type(action) for action in env.taken} == {np.int64}
    assert env.drawn == 0


def test_an_ended_episode_is_not_stepped_again():
    runtime, env, _ = runtime_of(Counting([1.0]))
    assert error_of(runtime, STEP) == "step: send reset first"
    ask(runtime, RESET)
    assert [reply["type"] for reply in ask(runtime, STEP)] == ["step", "episode_end"]
    assert error_of(runtime, STEP) == "step: the episode has ended; send reset"
    assert len(env.taken) == 1
    ask(runtime, RESET)
    assert ask(runtime, STEP)[0]["step_index"] == 1


def test_the_environment_has_the_seed_and_the_agent_one_that_follows_from_it():
    runtime, env, agent = runtime_of()
    ask(runtime, RESET)
    ask(runtime, {"cmd": "reset", "seed": None})
    ask(runtime, {"cmd": "reset"})
    assert env.seeds == [5, None, None]
    assert agent.seeds == [Seeds(5).integer("policy"), None, None]


def test_agents_may_draw_anew_in_an_episode_of_the_same_seed():
    runtime, env, agent = runtime_of()
    for agent_seed in (8, 9, None):
        ask(runtime, {**RESET, "agent_seed": agent_seed})
    assert env.seeds == [5, 5, 5]
    assert agent.seeds == [Seeds(seed).integer("policy") for seed in (8, 9, 5)]


def test_an_episode_is_truncated_after_max_steps():
    runtime, _, _ = runtime_of(Counting([1.0, 1.0, 1.0]), max_steps=2)
    ask(runtime, RESET)
    ask(runtime, STEP)
    last, end = ask(runtime, STEP)
    assert (last["terminated"], last["truncated"]) == (False, True)
    assert (end["episode_length"], end["truncated"]) == (2, True)
    # A reset has the last word; an end of the environment's own is none of ours.
    ask(runtime, {**RESET, "max_steps": 3})
    for _ in range(3):
        replies = ask(runtime, STEP)
    assert (replies[0]["terminated"], replies[0]["truncated"]) == (True, False)


def test_frames_are_drawn_when_asked_for():
    runtime, env, _ = runtime_of()
    (ready,) = ask(runtime, {**RESET, "frame": "rgb"})
    payload = ready["render_payload"]
    assert (payload["mode"], payload["width"], payload["height"]) == ("rgb", 6, 4)
    assert payload["rgb"][0][1] == [255, 0, 7]
    (reply,) = ask(runtime, {**STEP, "frame": "png"})
    payload = reply["render_payload"]
    assert (payload["mode"], payload["width"], payload["height"]) == ("png", 6, 4)
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(payload["data"]))))
    assert picture.shape == (4, 6, 3)
    assert picture[0, 1].tolist() == [255, 1, 7]
    assert env.drawn == 2


def test_a_last_frame_is_drawn_where_the_episode_ends():
    runtime, env, _ = runtime_of()
    ask(runtime, {**RESET, "max_steps": 2})
    (reply,) = ask(runtime, {**STEP, "last_frame": "png"})
    assert "render_payload" not in reply
    assert env.drawn == 0
    reply, _ = ask(runtime, {**STEP, "last_frame": "rgb"})
    assert reply["render_payload"]["rgb"][0][1] == [255, 2, 7]
    # One picture, in the form of the request that always has an answer.
    ask(runtime, {**RESET, "max_steps": 1})
    reply, _ = ask(runtime, {**STEP, "frame": "png", "last_frame": "rgb"})
    assert (reply["render_payload"]["mode"], env.drawn) == ("png", 2)
    # Nothing is refused that may not come.
    runtime, _, _ = runtime_of(Counting(render_mode=None))
    ask(runtime, {**RESET, "max_steps": 1})
    reply, _ = ask(runtime, {**STEP, "last_frame": "png"})
    assert "render_payload" not in reply


@pytest.mark.parametrize("asked", ["frame", "last_frame"])
def test_a_step_whose_frame_fails_still_reports_what_it_cost(asked):
    runtime, env, _ = runtime_of(agent=Deciding([Decision(1, tokens=7)]))
    ask(runtime, {**RESET, "max_steps": 1})
    env.render = lambda: "no picture"
    (reply,) = ask(runtime, {**STEP, asked: "png"})
    assert (reply["type"], reply["tokens"]) == ("error", 7)
    # Once.
    (reply,) = ask(runtime, STEP)
    assert (reply["message"], "tokens" in reply) == (
        "step: the environment failed; send reset",
        False,
    )


def test_a_frame_that_cannot_be_drawn_is_refused_before_the_step():
    runtime, env, agent = runtime_of(Counting(render_mode=None))
    assert "expected an environment with the render mode rgb_array, got None" in error_of(
        runtime, {**RESET, "frame": "png"}
    )
    ask(runtime, RESET)
    assert "render mode rgb_array" in error_of(runtime, {**STEP, "frame": "png"})
    assert (env.taken, agent.seen) == ([], [])
    assert ask(runtime, STEP)[0]["step_index"] == 1
    assert "Invalid enum value 'gif'" in error_of(runtime, {**STEP, "frame": "gif"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "expected a line of JSON, got ''"),
        (b"step", "expected a line of JSON, got 'step'"),
        (b'{"cmd":"step"', "expected a line of JSON"),
        (b'{"cmd":"step"} {"cmd":"step"}', "expected a line of JSON"),
        (b'{"cmd":"step","action":NaN}', "expected a line of JSON"),
        (b'\xff\xfe{"cmd":"step"}', "expected a line of JSON"),
        (b'{"cmd":"\xff"}', "expected a line of JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"cmd":"step","action":' + b"[" * 100_000, "nested too deeply"),
        (b'{"cmd":"step","x":' + b"[" * 100_000, "nested too deeply"),
        (b"[]", "expected an object with \"cmd\", got '[]'"),
        (b"3", 'expected an object with "cmd"'),
        (b"{}", 'expected an object with "cmd"'),
        (b'{"cmd":3}', 'expected an object with "cmd"'),
        (b'{"cmd":"Step"}', "unknown command 'Step'; expected one of init_agent, ping, reset,"),
        (b'{"cmd":"reset","seed":"1"}', "reset: Expected `int | null`, got `str` - at `$.seed`"),
        (b'{"cmd":"reset","seed":1.5}', "reset: Expected `int | null`, got `float`"),
        (b'{"cmd":"reset","seed":true}', "reset: Expected `int | null`, got `bool`"),
        (b'{"cmd":"reset","seed":-1}', "reset: Expected `int` >= 0 - at `$.seed`"),
        (b'{"cmd":"reset","seed":-%d}' % 2**100, "reset: Expected `int` >= 0"),
        (b'{"cmd":"reset","max_steps":0}', "reset: Expected `int` >= 1 - at `$.max_steps`"),
        (
            b'{"cmd":"step","action":1}',
            "step: action: expected none, because this operator decides",
        ),
        (b'{"cmd":"select_action","player_id":"a","observation":0}', "send init_agent first"),
    ],
)
def test_bad_input_is_one_error_each_and_changes_nothing(line, message):
    runtime, env, agent = runtime_of()
    ask(runtime, RESET)
    ask(runtime, STEP)
    assert message in error_of(runtime, line)
    assert len(env.taken) == len(agent.seen) == 1
    assert ask(runtime, STEP)[0]["step_index"] == 2


def test_errors_repeat_the_id_where_it_can_be_read():
    runtime, _, _ = runtime_of()
    for line, expected in [
        (b'{"id":1,"cmd":"step"}', 1),
        (b'{"id":"b","cmd":"dance"}', "b"),
        (b'{"id":3,"cmd":"reset","seed":[]}', 3),
        (b'{"id":4}', 4),
    ]:
        (reply,) = ask(runtime, line)
        assert (reply["type"], reply["id"]) == ("error", expected)
    assert "id" not in ask(runtime, b'{"id":[1],"cmd":"step"}')[0]


def test_unknown_fields_are_ignored_and_null_stands_for_absent():
    runtime, _, _ = runtime_of()
    (ready,) = ask(runtime, {**RESET, "max_steps": None, "frame": None, "id": None, "new": [1]})
    assert (ready["type"], ready["seed"]) == ("ready", 5)


def test_a_seed_may_have_any_size():
    runtime, env, _ = runtime_of()
    (ready,) = ask(runtime, {"cmd": "reset", "seed": 2**100})
    assert ready["seed"] == env.seeds[0] == 2**100


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit(), MemoryError()])
def test_an_agent_that_raises_has_not_moved_the_environment(error, capsys):
    runtime, env, _ = runtime_of(agent=Deciding([error]))
    ask(runtime, RESET)
    said = error_of(runtime, STEP)
    assert said == (f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    assert "Traceback" not in said
    assert "in decide" in capsys.readouterr().err
    assert env.taken == []
    assert ask(runtime, STEP)[0]["step_index"] == 1


def test_an_environment_that_raises_needs_a_reset():
    runtime, _, _ = runtime_of(Counting([1.0, RuntimeError("the physics\n exploded"), 1.0]))
    ask(runtime, RESET)
    ask(runtime, STEP)
    assert error_of(runtime, STEP) == "RuntimeError: the physics\n exploded"
    assert error_of(runtime, STEP) == "step: the environment failed; send reset"
    assert ask(runtime, RESET)[0]["type"] == "ready"
    assert ask(runtime, STEP)[0]["episode_reward"] == 1.0


def test_a_reset_that_fails_can_be_sent_again():
    class Shy(Counting):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed == 5:
                raise LookupError("not five")
            return self._seen(), {}

    runtime, _, _ = runtime_of(Shy())
    ask(runtime, {"cmd": "reset", "seed": 1})
    assert error_of(runtime, RESET) == "LookupError: not five"
    # The episode before is over as well.
    assert error_of(runtime, STEP) == "step: the reset failed; send another"
    assert ask(runtime, {"cmd": "reset", "seed": 6})[0]["seed"] == 6


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), np.float32("-inf"), "much", None])
def test_a_reward_that_json_has_not_is_an_error(reward):
    runtime, _, _ = runtime_of(Counting([reward, 1.0]))
    ask(runtime, RESET)
    assert "Error: " in error_of(runtime, STEP)
    assert error_of(runtime, STEP) == "step: the environment failed; send reset"


@pytest.mark.parametrize("reward", [np.float32(0.5), np.int64(1), True, 1])
def test_rewards_of_any_type_are_numbers(reward):
    runtime, _, _ = runtime_of(Counting([reward, 1.0]))
    ask(runtime, RESET)
    assert ask(runtime, STEP)[0]["reward"] == float(reward)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (1, "TypeError: decide: expected a Decision, got 1"),
        (Decision(3), "ValueError: expected an action of Discrete(3), got 3"),
        (Decision(-1), "ValueError: expected an action of Discrete(3), got -1"),
        (Decision(1.0), "ValueError: expected an action of Discrete(3), got 1.0"),
        (Decision([1]), "ValueError: expected an action of Discrete(3), got [1]"),
        (Decision(None), "ValueError: expected an action of Discrete(3), got None"),
        (Decision(1, raw=b"x"), "TypeError: decide: raw: expected a str, got b'x'"),
        (Decision(1, tokens=1.5), "TypeError: decide: tokens: expected an int, got 1.5"),
        (
            Decision(1, parsed=object),
            "TypeError: decide: parsed: expected values that JSON can hold",
        ),
        (Decision(1, parsed=[float("nan")]), "TypeError: decide: parsed: expected values"),
        (Decision(1, parsed={"a": np.array(np.inf)}), "TypeError: decide: parsed: expected"),
    ],
)
def test_a_wrong_decision_is_an_error_before_the_step(made, message):
    runtime, env, _ = runtime_of(agent=Deciding([made]))
    ask(runtime, RESET)
    assert error_of(runtime, STEP).startswith(message)
    assert env.taken == []
    assert ask(runtime, STEP)[0]["step_index"] == 1


def test_what_an_agent_says_may_hold_numpy_and_half_a_character():
    made = Decision(1, "half \ud83d", {"logits": np.array([1.5, 2.0]), "n": np.int32(3)}, 2)
    runtime, _, _ = runtime_of(agent=Deciding([made]))
    ask(runtime, RESET)
    (reply,) = ask(runtime, STEP)
    assert (reply["raw"], reply["parsed"]) == ("half ?", {"logits": [1.5, 2.0], "n": 3})


def test_an_error_of_any_text_is_a_reply():
    class UnprintableError(Exception):
        def __str__(self):
            raise RuntimeError

    errors = [UnprintableError(), ValueError("\ud800"), ValueError("x" * 10**6)]
    runtime, _, _ = runtime_of(agent=Deciding(errors))
    ask(runtime, RESET)
    said = [error_of(runtime, STEP) for _ in errors]
    assert said[0] == "UnprintableError: (its message cannot be converted to text)"
    assert said[1] == "ValueError: \\ud800"
    assert len(said[2]) == 2000


SPACES = [
    (spaces.Box(-1, 1, (2,), np.float32), [0.5, 3.0], [0.5, 1.0]),
    (spaces.Box(-1, 1, (), np.float64), -7, -1.0),
    (spaces.Box(0, 255, (2,), np.uint8), [300, -4], [255, 0]),
    (spaces.MultiDiscrete([3, 2]), np.array([2, 1]), [2, 1]),
    (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    (spaces.Discrete(3, start=-1), -1, -1),
    (spaces.Text(5), "abc", "abc"),
    (
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(0, 1, (1,))])),
        {"b": ([2.0],), "a": np.int8(1)},
        {"a": 1, "b": [[1.0]]},
    ),
]


@pytest.mark.parametrize(("space", "chosen", "shown"), SPACES, ids=lambda value: str(value)[:30])
def test_actions_of_all_spaces_are_shown_as_the_environment_got_them(space, chosen, shown):
    env = Counting(action_space=space)
    runtime, _, _ = runtime_of(env, Deciding([Decision(chosen)]))
    ask(runtime, RESET)
    assert ask(runtime, STEP)[0]["action"] == shown
    assert space.contains(env.taken[0])


def test_a_person_may_bring_the_action():
    agent = Deciding()
    agent.takes_actions = True
    runtime, env, _ = runtime_of(agent=agent)
    ask(runtime, RESET)
    assert ask(runtime, {**STEP, "action": 2})[0]["action"] == 2
    assert (env.taken, agent.seen) == ([2], [])
    assert error_of(runtime, {**STEP, "action": 9}) == "step: action: expected from 0 to 2, got 9"
    assert "null" in error_of(runtime, {**STEP, "action": None})
    assert len(env.taken) == 1


def test_pings_and_stops_are_answered_at_any_time():
    runtime, _, _ = runtime_of()
    assert ask(runtime, {"cmd": "ping", "id": 1}) == [{"type": "pong", "id": 1}]
    assert not runtime.ended
    assert ask(runtime, {"cmd": "stop"}) == [{"type": "stopped"}]
    assert runtime.ended


def test_closing_closes_environment_and_agent_once_each():
    class Broken(Counting):
        def close(self):
            super().close()
            raise OSError("stuck")

    runtime, env, agent = runtime_of(Broken())
    with pytest.raises(OSError, match="stuck"):
        runtime.close()
    runtime.close()
    assert env.n_closed == 1
    assert agent.n_closed == 2  # may be called twice


def test_a_player_alone_has_no_environment():
    runtime = InteractiveRuntime(Deciding())
    runtime.bind()
    assert error_of(runtime, RESET) == "reset: this worker only plays games; send init_agent"
    assert error_of(runtime, STEP) == "step: this worker only plays games; send init_agent"


def test_names_of_actions_are_told_where_the_environment_has_them():
    env = gym.make("minigrid:MiniGrid-Empty-5x5-v0")
    runtime, _, _ = runtime_of(env, lambda observation: 2)
    (ready,) = ask(runtime, RESET)
    assert ready["action_names"][:3] == ["left", "right", "forward"]
    assert ready["observation_shape"] is None  # a Dict space
    runtime.close()


def test_what_cannot_be_numbered_says_its_space_as_text():
    box = spaces.Box(-1, 1, (2,), np.float32)
    runtime, _, _ = runtime_of(Counting(action_space=box), Deciding([Decision([0.0, 0.0])]))
    (ready,) = ask(runtime, RESET)
    assert ready["action_space"] == {"text": "Box(-1.0, 1.0, (2,), float32)"}


def test_people_are_shown_text_where_nothing_is_drawn():
    agent = Deciding()
    agent.takes_actions = True
    runtime, env, _ = runtime_of(Counting(render_mode=None), agent)
    (ready,) = ask(runtime, {**RESET, "frame": "png"})
    assert ready["render_payload"] == {"mode": "text", "text": "[0. 3.]"}
    (stepped,) = ask(runtime, {**STEP, "frame": "png", "action": 2})
    assert stepped["render_payload"] == {"mode": "text", "text": "[1. 3.]"}
    assert env.taken == [2]


def test_people_are_told_the_mission():
    agent = Deciding()
    agent.takes_actions = True
    env = Counting()
    env.mission = "go there"
    runtime, _, _ = runtime_of(env, agent)
    assert ask(runtime, RESET)[0]["text"] == "go there"
    env.mission = "come back"
    assert ask(runtime, {**STEP, "action": 2})[0]["text"] == "come back"
    agent.takes_actions = False
    assert "text" not in ask(runtime, RESET)[0]


def test_an_environment_that_draws_text_shows_it_in_place_of_a_picture():
    env = Counting(render_mode="ansi")
    env.render = lambda: f"{env.n} of 3"
    runtime, _, _ = runtime_of(env)
    (ready,) = ask(runtime, {**RESET, "frame": "rgb"})
    assert ready["render_payload"] == {"mode": "text", "text": "0 of 3"}
