"""Language models at the cards of a board."""

from __future__ import annotations

import json

from boards import begin, card_of, until

from parllel.distributed.operators import Board, OperatorConfig, ScriptedServer
from parllel.distributed.operators.llm.scripted_server import Rule

KEY = "sk-secret-of-cards"


def model(name: str, server: ScriptedServer, **settings) -> OperatorConfig:
    given = {"model": f"model-{name}", "base_url": server.base_url, "attempts": 0, "retries": 0}
    return OperatorConfig(
        "llm",
        name,
        "CartPole-v1",
        settings={**given, "api_key_env": "MODEL_KEY", **settings},
        variables={"MODEL_KEY": KEY},
    )


def test_cards_show_what_models_say_and_fail_alone(tmp_path):
    good = [Rule("hm", times=1, usage=(9, 1)), Rule("Action: 1", usage=(9, 1), delay_s=0.2)]
    with (
        ScriptedServer(good) as one,
        ScriptedServer([Rule("go away", status=403, echoes_key=True)]) as other,
        Board([model("good", one), model("refused", other)], base=tmp_path) as board,
    ):
        begin(board, 0)
        board.step()
        until(board, lambda shown: card_of(shown, "refused")["status"] == "failed")
        until(board, lambda shown: card_of(shown, "good")["step"] == 1)
        shown = board.snapshot()
        said = card_of(shown, "good")
        assert said["policy"] == "model-good"
        assert (said["last"]["raw"], said["last"]["parsed"], said["last"]["tokens"]) == (
            "hm",
            None,
            10,
        )
        assert said["last"]["executed"] in (0, 1)
        assert "status 403: go away Bearer (api_key)" in card_of(shown, "refused")["message"]
        board.step(["good"])
        until(board, lambda shown: card_of(shown, "good")["step"] == 2)
        shown = board.snapshot()
        assert card_of(shown, "good")["last"]["parsed"] == 1
        assert KEY not in json.dumps(shown)
        folder = board.folder
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
