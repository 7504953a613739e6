from __future__ import annotations

import chess
import numpy as np
import pytest

from parllel.distributed.operators.llm.chess_dialogue import ChessDialogue, drawn_board

START = chess.Board()


def dialogue(board=START, **options):
    return ChessDialogue(board.fen(), [move.uci() for move in board.legal_moves], **options)


def after(*answers, board=START, **options):
    """Return the dialogue after answers, and what was said to the last of them."""
    talk = dialogue(board, **options)
    for answer in answers:
        assert not talk.ended
        talk.take(answer)
    return talk, talk.messages[-1]["content"]


def test_a_model_may_ask_before_it_moves():
    talk, said = after("Let me look.\nget_current_board")
    assert "8 r n b q k b n r" in said
    assert START.fen() in said
    talk.take("get legal moves")
    said = talk.messages[-1]["content"]
    assert sorted(said.splitlines()[0].split()[2:]) == sorted(m.uci() for m in START.legal_moves)
    assert "8 answers left" in said
    talk.take("make_move e2e4")
    assert (talk.ended, talk.move, talk.named_move) == (True, "e2e4", "e2e4")
    assert [message["role"] for message in talk.messages] == [
        *("system", "user", "assistant", "user", "assistant", "user", "assistant")
    ]
    assert "as White" in talk.messages[0]["content"]


@pytest.mark.parametrize(
    "answer",
    [
        "make move g1f3",
        "**make_move g1f3**",
        'make_move("g1f3")',
        '{"make_move": "g1f3"}',
        "make move: G1F3",
        "make move g1-f3.",
        "g1f3",
        "Move: g1f3",
        "e2e4 is common, d2d4 too.\nI make move g1f3!",
        "get legal moves would tell, but I know:\n\nmake move g1f3",
    ],
)
def test_a_move_is_understood_in_prose(answer):
    talk, _ = after(answer)
    assert (talk.ended, talk.move) == (True, "g1f3")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I resign.",
        "make move Nf3",
        "make move e2e4 or make move d2d4",
        "I think of e2e4",
        "make move e2e4x",
        "I will not make move e2e4",
    ],
)
def test_what_names_no_single_move_is_corrected(answer):
    talk, said = after(answer)
    assert (talk.ended, talk.move, talk.named_move) == (False, None, None)
    assert "not understood" in said
    assert "9 answers left" in said


def test_illegal_moves_are_corrected_until_none_are_allowed():
    talk, said = after("make move e2e5")
    assert "e2e5 is not a legal move here" in said
    talk.take("make move e2e4")
    assert talk.move == "e2e4"
    talk, _ = after("make move e2e5", "hm", "make move a1a8", attempts=2)
    assert (talk.ended, talk.move, talk.named_move) == (True, None, "a1a8")
    talk, _ = after("make move e2e5", attempts=0)
    assert (talk.ended, talk.move, talk.named_move) == (True, None, "e2e5")


def test_questions_take_turns_too():
    talk, said = after("get board", "get board", turns=3)
    assert "1 answer left" in said
    talk.take("get board")
    assert (talk.ended, talk.move, talk.named_move) == (True, None, None)
    talk, _ = after("get board", "get board", "make move e2e4", turns=3)
    assert talk.move == "e2e4"


def test_a_promotion_names_its_piece():
    board = chess.Board("8/4P3/8/8/8/8/k6K/8 w - - 0 1")
    assert after("make move e7e8Q", board=board)[0].move == "e7e8q"
    talk, said = after("make move e7e8", board=board)
    assert talk.move is None
    assert "e7e8 is not a legal move" in said


def test_black_reads_its_own_colour_and_instructions_come_first():
    board = chess.Board()
    board.push_uci("e2e4")
    system = dialogue(board, instructions="Play fast.").messages[0]["content"]
    assert system.startswith("Play fast.\n\nYou play chess as Black.")


def test_a_drawn_board_has_the_pieces_of_the_position():
    generator = np.random.default_rng(3)
    board = chess.Board()
    for _ in range(60):
        moves = list(board.legal_moves)
        if not moves:
            break
        board.push(moves[generator.integers(len(moves))])
        rows = [line[2:] for line in drawn_board(board.fen()).splitlines()]
        assert rows == [*str(board).splitlines(), "a b c d e f g h"]
