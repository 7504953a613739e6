"""Chess by a model's dialogue, asked over HTTP; the positions are those of python-chess."""

from __future__ import annotations

import chess
import pytest
from scripted import KEY, scripted

from parllel.distributed.operators.llm.chess_agent import ChessModelAgent
from parllel.distributed.operators.llm.llm_error import BudgetError, LlmError
from parllel.distributed.operators.llm.scripted_server import Rule

MOVES = [move.uci() for move in chess.Board().legal_moves]
# The numbers of actions are the game's own.
LEGAL = [100 + i for i in range(len(MOVES))]
INFO = {"text": chess.Board().fen(), "legal_moves": MOVES, "legal_actions": LEGAL}


def decided(*rules, seed=0, default=None, options=(), **settings):
    """Return a decision in the first position, and the requests that it took."""
    with scripted(*rules, **dict(options)) as (client, server):
        agent = ChessModelAgent(client, settings, default)
        agent.bind(None, None)
        agent.reset(seed)
        return agent.decide(None, INFO), server.requests


def answers(*texts, **options):
    return [Rule(text, times=1, **options) for text in texts]


def test_tokens_are_those_of_the_whole_dialogue_and_raw_is_its_last_answer():
    rules = answers("get board", "get legal moves", "I like make move d2d4", usage=(100, 7))
    made, requests = decided(*rules)
    assert made.action == LEGAL[MOVES.index("d2d4")]
    assert (made.raw, made.parsed) == ("I like make move d2d4", "d2d4")
    assert (made.tokens, made.prompt_tokens, made.completion_tokens) == (321, 300, 21)
    assert [len(request.messages) for request in requests] == [2, 4, 6]
    assert set(MOVES) < set(requests[2].messages[-1]["content"].split())
    assert INFO["text"] in requests[1].messages[-1]["content"]
    assert {request.authorization for request in requests} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("last", ["make move e2e4", "make move e2e5"])
def test_the_messages_of_a_decision_are_those_that_were_sent(last):
    made, requests = decided(*answers("get board", last), turns=2, unparsed="first")
    sent = [one for one in requests[-1].messages if one["role"] != "assistant"]
    assert made.prompts == sent
    assert [one["role"] for one in sent] == ["system", "user", "user"]
    assert made.understood == (last == "make move e2e4")


def test_a_wrong_move_is_corrected():
    made, requests = decided(*answers("make move e2e5", "make move e2e4"))
    assert (made.parsed, made.action) == ("e2e4", LEGAL[MOVES.index("e2e4")])
    assert "e2e5 is not a legal move" in requests[1].messages[-1]["content"]


def test_a_cut_answer_is_told_so_and_all_answers_are_kept():
    rules = [
        Rule("make move e2e4", times=1, finish_reason="length", usage=(5, 1)),
        Rule(None, times=1, message={"refusal": "I don't play."}, usage=(5, 1)),
        Rule("make move d2d4", usage=(5, 1)),
    ]
    made, requests = decided(*rules)
    assert (made.parsed, made.understood, made.calls, made.tokens) == ("d2d4", True, 3, 18)
    said = "Your answer was cut at the limit of tokens. Give a shorter one."
    assert requests[1].messages[-1]["content"].startswith(said)
    assert said not in requests[2].messages[-1]["content"]
    assert requests[2].messages[-2] == {"role": "assistant", "content": "(no text)"}
    assert [answer["finish_reason"] for answer in made.answers] == ["length", "stop", "stop"]
    assert made.answers[1]["refusal"] == "I don't play."


def test_what_was_answered_before_an_error_is_not_lost():
    rules = [Rule("get board", times=1, usage=(5, 1)), Rule("no", status=400)]
    with pytest.raises(LlmError, match="status 400: no") as raised:
        decided(*rules)
    spent = raised.value.decision
    assert (spent.raw, spent.tokens, spent.understood) == ("get board", 6, None)
    with pytest.raises(LlmError, match="names no action") as raised:
        decided(Rule("hm", usage=(5, 1)), attempts=0, unparsed="error")
    assert (raised.value.decision.tokens, raised.value.decision.understood) == (6, False)


def test_without_a_legal_move_the_game_is_given_what_was_said():
    made, requests = decided(Rule("make move e2e5"), attempts=2)
    assert (made.action, made.parsed, made.raw) == ("e2e5", None, "make move e2e5")
    assert len(requests) == 3
    made, requests = decided(Rule(""), attempts=0)
    assert (made.action, made.parsed, made.raw, len(requests)) == (None, None, "", 1)
    made, requests = decided(Rule("get board"), turns=4)
    assert (made.action, made.raw, len(requests)) == (None, "get board", 4)


def test_a_rule_of_the_settings_goes_before_that_of_the_game():
    drawn = [decided(Rule("?"), attempts=0, default="random", seed=seed)[0] for seed in range(9)]
    assert {made.parsed for made in drawn} == {None}
    assert len({made.action for made in drawn}) > 3
    assert {made.action for made in drawn} <= set(LEGAL)
    again, _ = decided(Rule("?"), attempts=0, unparsed="random", seed=4)
    assert again.action == drawn[4].action
    made, _ = decided(Rule("?"), attempts=0, unparsed="first", default="random")
    assert made.action == LEGAL[0]
    with pytest.raises(LlmError, match="names no action: 'no idea'"):
        decided(Rule("no idea"), attempts=0, unparsed="error")


def test_faults_of_the_server_in_the_middle_of_a_dialogue_are_waited_out():
    made, requests = decided(
        *answers("get board", usage=(10, 1)),
        Rule("slow down", times=1, status=429, headers={"Retry-After": "0"}),
        Rule("oops", times=1, status=500),
        Rule("make move a2a3", times=1, cut=20),
        *answers("make move e2e4", usage=(20, 2)),
    )
    assert (made.parsed, made.tokens) == ("e2e4", 33)
    assert [len(request.messages) for request in requests] == [2, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("rule", "options", "error", "match"),
    [
        (Rule("busy", status=429), {"retries": 0}, LlmError, "status 429: busy; after 1 attempt"),
        (Rule("oops", status=500), {"retries": 0}, LlmError, "status 500: oops"),
        (Rule("no", status=400), {}, LlmError, "status 400: no"),
        (Rule("make move e2e4", cut=30), {"retries": 0}, LlmError, "after 1 attempt"),
        (Rule("make move e2e4", delay_s=5), {"timeout_s": 0.3}, LlmError, r"0\.3 s"),
        (Rule("make move e2e4"), {"token_budget": 11}, BudgetError, "the budget of 11 tokens"),
    ],
)
def test_a_dialogue_that_cannot_go_on_is_an_error(rule, options, error, match):
    with pytest.raises(error, match=match):
        decided(*answers("get board", usage=(10, 1)), rule, options=options)


def test_other_games_are_refused():
    with scripted() as (client, _):
        agent = ChessModelAgent(client, {})
        with pytest.raises(ValueError, match="expected a position and legal moves, got none"):
            agent.decide(None, {"legal_actions": [1]})
