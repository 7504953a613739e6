"""What the page makes of states that a test decides: hostile text, long lists, refusals, much to see."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from chromium import expect
from scripted_board import ScriptedBoard

from parllel.pictures.png import png_bytes

PNG = png_bytes(np.zeros((8, 8, 3), np.uint8))
HOSTILE = "<img src=x onerror='document.title = 1'><b>bold</b>"
MOVES = [f"{column}{row}" for column in "abcdef" for row in range(1, 7)]
CARD = json.loads(
    """{
    "kind": "operator", "operator_type": "baseline", "env_id": "Env-v0", "policy": null,
    "status": "ready", "since": 0, "message": null, "episode": 0, "seed": 1, "step": 2,
    "reward": 1, "episode_reward": 2, "terminated": false, "truncated": false, "last": null,
    "totals": {
        "n_ended": 0, "n_failed": 0, "mean_reward": null, "mean_length": null, "tokens": null
    },
    "frame": null, "text": null, "questions": [], "players": null
    }"""
)
STATE = json.loads(
    """{
    "phase": "stopped", "speed": null, "autoplay": false, "seed": null, "folder": "runs/board",
    "scripts": [], "experiment": null
    }"""
)


class StatesBoard(ScriptedBoard):
    """A board whose cards are what a test says."""

    def __init__(self, folder, *cards):
        super().__init__(folder)
        self.cards = list(cards)

    def snapshot(self):
        return STATE | {"version": super().snapshot()["version"], "cards": self.cards}

    def show(self, *cards):
        self.cards = list(cards)
        self.change()


@pytest.fixture
def show(opened, pages, tmp_path):
    """Return a function that shows cards on a page, and returns the page and the board."""

    def open_page(*cards, **arguments):
        board = StatesBoard(tmp_path, *cards)
        page = pages.open(opened(board).dashboard.login_url, **arguments)
        expect(page.locator("#cards > article")).to_have_count(len(cards))
        return page, board

    return open_page


def card_state(card, **fields):
    return CARD | {"id": card} | fields


def asked(number, moves):
    actions = [{"action": move, "name": move, "keys": []} for move in moves]
    rest = dict.fromkeys(("player_id", "text", "space", "message"))
    return {"number": number, "actions": actions, **rest}


def test_what_agents_say_is_text_and_nothing_else(show):
    last = {"action": HOSTILE, "raw": HOSTILE, "parsed": HOSTILE, "executed": 1, "tokens": 3}
    page, _ = show(card_state("one", status="failed", message=HOSTILE, policy=HOSTILE, last=last))

    for field in ("message", "policy", "action", "raw", "parsed"):
        expect(page.locator(f"[data-card=one] [data-field={field}]").first).to_have_text(HOSTILE)
    assert page.locator(".card :is(img, b)").count() == 0
    assert page.title() == "parllel"


def test_a_model_that_is_not_understood_is_marked(show):
    totals = CARD["totals"] | {"n_ended": 2, "tokens": 9, "decisions": 5, "understood": 2}
    last = {"action": 1, "raw": "hm", "parsed": None, "understood": False, "executed": 1}
    known = totals | {"understood": 4}
    page, _ = show(
        card_state("poor", operator_type="llm", totals=totals, last=last),
        card_state("good", operator_type="llm", totals=known, last=last | {"understood": True}),
        card_state("none", totals=totals | {"decisions": 0, "understood": 0}, last={"action": 1}),
    )

    def field(card, name):
        return page.locator(f"[data-card={card}] [data-field={name}]")

    expect(field("poor", "understood")).to_have_text("2 of 5")
    expect(field("poor", "misread")).to_have_text("not understood")
    expect(page.locator("[data-card=poor] .understood[data-bad]")).to_be_visible()
    expect(field("good", "understood")).to_have_text("4 of 5")
    expect(field("good", "misread")).to_be_hidden()
    assert page.locator("[data-card=good] .understood[data-bad]").count() == 0
    expect(field("none", "understood")).to_be_hidden()
    expect(field("none", "misread")).to_be_hidden()


def test_colours_of_terminals_are_kept_and_their_codes_are_not(show):
    page, _ = show(card_state("lake", text="S\x1b[41mF\x1b[0mH\x1b[2K\nG"))

    text = page.locator("[data-card=lake] [data-field=text]")
    expect(text).to_have_text("SFH\nG")
    expect(text.locator(".sgr-41")).to_have_text("F")
    assert text.locator("span").count() == 1


def test_a_long_list_of_moves_is_filtered(show):
    page, board = show(card_state("me", status="waiting", questions=[asked(5, MOVES)]))
    find = page.locator("[data-field=filter]")

    find.fill("B")
    expect(page.locator("[data-action]:visible")).to_have_count(6)
    find.press("Enter")
    expect(page.locator("[data-field=question-message]")).to_contain_text("6 actions match")
    assert board.asked == []
    find.press_sequentially("3")
    find.press("Enter")
    until(page, lambda: board.asked == [("act", ("me", 5, "b3"))])


def test_a_refused_answer_is_explained_and_asked_again(show):
    page, board = show(card_state("me", status="waiting", questions=[asked(5, MOVES[:3])]))
    board.errors["act"] = ValueError("a1: the square is taken")

    page.locator("[data-action='\"a1\"']").click()

    expect(page.locator("[data-field=question-message]")).to_have_text("a1: the square is taken")
    page.locator("form[data-question='5'] [data-action='\"a2\"']").click()
    board.show(card_state("me", status="thinking"))
    expect(page.locator("form[aria-disabled=true] [data-action]")).to_have_count(3)
    board.show(card_state("me", status="waiting", questions=[asked(6, MOVES[3:5])]))
    expect(page.locator("form[data-question='6'] [data-action]")).to_have_count(2)
    assert board.asked == [("act", ("me", 5, "a2"))]


def test_a_square_that_several_moves_share_leaves_the_choice(show):
    moves = ["e7e8q", "e7e8r", *MOVES[:20]]
    squares = [[12, 4], [12, 4], *([one, 60] for one in range(20, 40))]
    board_of = {"columns": 8, "rows": 8, "left": 0.0, "squares": squares}
    question = asked(5, moves) | {"board": board_of}
    page, board = show(card_state("me", status="waiting", questions=[question], frame=1, step=10))
    board.add_card("me")
    board.draw("me", 1, png=PNG)
    page.locator("[data-square='12']").click()
    page.locator("[data-square='4']").click()
    expect(page.locator("[data-field=question-message]")).to_have_text(
        "Which of e7e8q, e7e8r? Press one."
    )
    expect(page.locator("[data-action]:visible")).to_have_count(2)
    assert board.asked == []
    page.locator("[data-action='\"e7e8r\"']").click()
    until(page, lambda: board.asked == [("act", ("me", 5, "e7e8r"))])
    # Nothing is asked, and nothing can be clicked.
    board.show(card_state("me", status="thinking", frame=1, step=10))
    expect(page.locator(".squares")).to_have_count(0)


def test_cards_out_of_sight_are_not_looked_at(show):
    names = [f"card-{number}" for number in range(12)]
    page, board = show(*map(card_state, names), viewport={"width": 360, "height": 500})

    def looked():
        (cards,) = board.looked.values()
        return cards

    page.locator("#connection[data-state=connected]").wait_for()
    page.wait_for_function("document.querySelector('[data-card=card-11]') !== null")
    until(page, lambda: "card-0" in looked() and "card-11" not in looked())
    page.locator("[data-card=card-11]").scroll_into_view_if_needed()
    until(page, lambda: "card-11" in looked() and "card-0" not in looked())


def test_a_picture_that_is_older_than_the_card_says_so(show):
    page, board = show(card_state("a", status="ended", step=20, frame=1))
    old = page.locator("[data-card=a] [data-field=old]")
    board.add_card("a")
    board.draw("a", 1, png=PNG)
    expect(old).to_have_text("Picture of step 10")
    board.draw("a", 2, png=PNG)
    expect(old).to_be_hidden()
    # The same step of an episode before.
    board.show(card_state("a", status="ready", episode=1, step=20, frame=2))
    expect(old).to_have_text("Picture of episode 0, step 20")
    # While all moves on, each picture is a moment old.
    board.show(card_state("a", status="thinking", episode=1, step=21, frame=2, since=time.time()))
    expect(old).to_be_hidden()


def until(page, condition):
    """Wait until what a page asked of the server holds."""
    for _ in range(1000):
        if condition():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it did not come true")
