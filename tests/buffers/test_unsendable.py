from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace

import pytest

from parllel.buffers.link import unsendable_part
from parllel.cages.stepping.step_result import StepResult

LOCK = threading.Lock()
OWN: dict[str, object] = {"lock": LOCK}
OWN["itself"] = {"deep": OWN}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (LOCK, "an object of type _thread.lock"),
        (
            (3, ({"reward": 1.0, "info": {"a": 1, "b": LOCK}}, True)),
            "info['b'], of type _thread.lock,",
        ),
        ({"info": {7: [0, (LOCK,)]}}, "info[7][1][0], of type _thread.lock,"),
        (
            [SimpleNamespace(a=1, inner=SimpleNamespace(lock=LOCK))],
            "inner.lock, of type _thread.lock,",
        ),
        ((1, StepResult({"info": {"b": LOCK}}, ())), "info['b'], of type _thread.lock,"),
        ({"info": OWN}, "info['lock'], of type _thread.lock,"),
    ],
)
def test_the_innermost_part_is_named(value: object, said: str) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object"):
        pickle.dumps(value)
    assert unsendable_part(value, pickle.dumps) == said
