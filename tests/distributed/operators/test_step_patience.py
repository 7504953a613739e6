import pytest

from parllel.distributed.operators import Experiment, MultiAgentConfig, OperatorConfig
from parllel.distributed.operators.protocol.operator_config import step_timeout_of

BOT = OperatorConfig("baseline", "bot", policy="random")
MODEL = OperatorConfig("llm", "model", settings={"model": "any"})
PERSON = OperatorConfig("human", "person")


@pytest.mark.parametrize(
    ("operators", "seconds"),
    [([BOT], 30), ([MODEL], 600), ([PERSON], 3600), ([BOT, MODEL], 600), ([], 30)],
)
def test_the_slowest_kind_has_its_time_unless_another_is_given(operators, seconds):
    assert step_timeout_of(operators, None) == seconds
    assert step_timeout_of(operators, 5.0) == 5.0


def test_a_time_of_an_experiment_is_for_all():
    game = MultiAgentConfig(
        "game", "pettingzoo/classic/rps_v2", {"player_0": BOT, "player_1": PERSON}
    )
    assert Experiment("any", [game], seeds=[1]).step_timeout_s is None
    assert Experiment("any", [game], seeds=[1], step_timeout_s=2).as_json()["step_timeout_s"] == 2
