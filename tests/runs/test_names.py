from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import dataclass, replace

import pytest

from parllel import Seeds
from parllel.cages import Spaces
from parllel.envs import ParallelEnvAdapter
from parllel.runners import OnPolicyRunner
from parllel.runs.names import nearest, suggest_fields, suggest_names
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel.torch import PPO, agent_for, agents_for
from parllel_patterns import PPO_DEFAULTS, PpoParameters


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "learning_rate"),
        ("learning_rte", "learning_rate"),
        ("ent_coef", "entropy_loss_coeff"),
        ("clip", "clip_grad_norm"),
        ("zzz", None),
    ],
)
def test_the_nearest_name_is_that_which_was_meant(name, meant):
    names = ["entropy_loss_coeff", "clip_grad_norm", "learning_rate"]
    assert nearest(name, names) == meant


def inner(a, *, frames=0):
    return a, frames


@suggest_names(inner)
def outer(b, *values, flag=False, **further):
    """Say what came."""
    return b, values, flag, further


def test_what_is_known_passes():
    assert outer(1, 2, flag=True, frames=3) == (1, (2,), True, {"frames": 3})
    assert outer(b=1, a=2) == (1, (), False, {"a": 2})
    assert outer.__doc__ == "Say what came."
    assert [*inspect.signature(outer).parameters] == ["b", "values", "flag", "further"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("frame", r"^outer: unexpected argument 'frame'; did you mean frames\?$"),
        ("flags", r"^outer: .*'flags'; did you mean flag\?$"),
        ("zzz", r"^outer: .*'zzz'; expected some of \['b', 'flag', 'a', 'frames'\]$"),
        # They cannot be given by keyword.
        ("values", r"^outer: unexpected argument 'values'; expected some of"),
        ("further", r"^outer: unexpected argument 'further'; expected some of"),
    ],
)
def test_an_unknown_argument_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        outer(1, **{wrong: 4})


def test_what_python_refuses_it_refuses_as_before():
    with pytest.raises(TypeError, match=r"outer\(\) missing 1 required positional argument: 'b'"):
        outer()


def test_a_decorated_dataclass_is_a_dataclass_still():
    @suggest_fields
    @dataclass(frozen=True)
    class Sizes:
        width: int = 1
        height: int = 2

    assert [*inspect.signature(Sizes).parameters] == ["width", "height"]
    assert replace(Sizes(3), height=4) == Sizes(width=3, height=4)
    with pytest.raises(TypeError, match=r"Sizes: unexpected argument 'wdth'; did you mean width\?"):
        Sizes(wdth=3)


def test_the_parameters_of_ppo_suggest_names():
    said = r"^PpoParameters: unexpected argument 'lr'; did you mean learning_rate\?$"
    with pytest.raises(TypeError, match=said):
        replace(PPO_DEFAULTS, lr=1)
    with pytest.raises(TypeError, match=said):
        PpoParameters(lr=1)
    changed = replace(PPO_DEFAULTS, learning_rate=1)
    for copied in (copy.deepcopy(changed), pickle.loads(pickle.dumps(changed))):
        assert copied == changed != PPO_DEFAULTS


def test_what_a_build_script_calls_suggests_names():
    adapter = ParallelEnvAdapter(CountingParallelEnv({"a": 2, "b": 2}))
    spaces = Spaces(adapter.observation_space, adapter.action_space, "counting")
    one = Spaces(spaces.observation["a"], spaces.action["a"], "counting")
    agent = agent_for(one, seeds=Seeds(0))
    with pytest.raises(TypeError, match=r"^agent_for: .* did you mean hidden_sizes\?$"):
        agent_for(one, seeds=Seeds(1), hidden_size=(3,))
    # Of images it would be read; for vectors it was not looked at.
    with pytest.raises(TypeError, match=r"^agents_for: .* did you mean hidden_sizes\?$"):
        agents_for(spaces, seeds=Seeds(1), sharing="independent", hidden_size=(3,))
    with pytest.raises(TypeError, match=r"^PPO: .* 'lr'; did you mean learning_rate\?$"):
        PPO(agent, **PPO_DEFAULTS, seed=0, lr=1)
    with pytest.raises(TypeError, match=r"^OnPolicyRunner: .* 'n_step'; did you mean n_steps\?$"):
        OnPolicyRunner(None, None, None, n_step=3)
