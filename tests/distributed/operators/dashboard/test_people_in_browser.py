"""People play on the page: by mouse, by keyboard, by typing; alone and in games."""

from __future__ import annotations

import pytest
from chromium import expect
from dashboard_server import RPS, SQUARES

CHESS = "pettingzoo/classic/chess_v6"


def test_a_person_plays_by_mouse_and_by_keyboard(shown):
    shown.add("me", "human", SQUARES, env_kwargs={"length": 4})
    shown.reset(2)
    shown.page.click("#play")
    shown.expect("me", status="waiting", step=0)
    question = shown.card("me").locator("form[data-question]")
    expect(question.locator("[data-action]")).to_have_count(3)
    question.locator("[data-action='2']").click()
    shown.expect("me", status="waiting", step=1, reward=10)
    shown.page.keyboard.press("ArrowLeft")
    shown.expect("me", status="waiting", step=2, reward=-1)
    shown.page.keyboard.press("0")
    shown.expect("me", status="waiting", step=3, reward=1)
    # Held in a button's focus, as by Tab.
    question.locator("[data-action='2']").focus()
    shown.page.keyboard.press("Enter")
    shown.expect("me", status="ended", step=4, reward=10, episode_reward=20)
    expect(shown.card("me").locator("form[data-question]")).to_have_count(0)


def test_keys_are_for_the_card_that_has_the_focus(shown):
    for name in ("left", "right"):
        shown.add(name, "human", SQUARES)
    shown.reset(2)
    shown.page.click("#play")
    for name in ("left", "right"):
        shown.expect(name, status="waiting")
    shown.page.keyboard.press("2")  # whose is it?
    shown.card("right").focus()
    shown.page.keyboard.press("1")
    shown.expect("right", status="waiting", step=1, reward=-1)
    shown.expect("left", status="waiting", step=0)


def test_actions_that_are_numbers_are_typed(shown):
    shown.add("typing", "human", "Pendulum-v1")
    shown.reset(2)
    shown.page.click("#play")
    shown.expect("typing", status="waiting")
    line = shown.card("typing").locator("input[data-field=json]")
    line.fill("[0.5, 1]")
    line.press("Enter")
    expect(shown.field("typing", "question-message")).to_be_visible()
    line.fill("[0.5]")
    line.press("Enter")
    shown.expect("typing", status="waiting", step=1)
    expect(shown.field("typing", "executed")).to_have_text("[0.5]")


def test_a_person_plays_chess_against_a_program(shown):
    players = [("player_0", "human", "white", None), ("player_1", "chess", "wild", "random")]
    shown.add_game("duel", CHESS, players)
    shown.reset(1)
    shown.page.click("#play")
    mine = shown.player("duel", "player_0").locator("form[data-question]")
    # Twenty moves, and a list to look for one.
    expect(mine.locator("[data-action]")).to_have_count(20)
    find = mine.locator("input[data-field=filter]")
    if find.is_visible():
        find.fill("e2e4")
        find.press("Enter")
    else:
        mine.get_by_role("button", name="e2e4").click()
    # Its own, and the answer.
    shown.expect("duel", step=2, status="waiting")
    assert shown.page.locator("[data-card=duel] canvas, [data-card=duel] pre").count() > 0
    shown.page.click("#play")


def test_people_and_programs_move_at_the_same_time(shown):
    players = [("red", "human", "red-hand", None), ("blue", "baseline", "blue-hand", "noop")]
    shown.add_game("hands", RPS, players, env_kwargs={})
    shown.reset(1)
    shown.page.click("#play")
    shown.expect("hands", status="waiting", step=0)
    question = shown.player("hands", "red").locator("form[data-question]")
    # Paper beats rock.
    question.locator("[data-action='1']").click()
    shown.expect("hands", status="waiting", step=1)
    reward = shown.player("hands", "red").locator("[data-field=total-reward]")
    expect(reward).to_have_text("1")
    question.locator("[data-action='2']").click()
    shown.expect("hands", status="waiting", step=2)
    expect(reward).to_have_text("0")


def click_square(shown, name, column, row, *, columns=8, rows=8, left=0.0):
    """Click the middle of a square of the board on a card, wherever the page has put it."""
    canvas = shown.field(name, "frame")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    width, height = canvas.evaluate("node => [node.width, node.height]")
    # The picture is as large as fits, in the middle.
    scale = min(box["width"] / width, box["height"] / height)
    x = box["x"] + (box["width"] - scale * width) / 2
    y = box["y"] + (box["height"] - scale * height) / 2
    across = (1 - 2 * left) * width / columns
    x += scale * (left * width + (column + 0.5) * across)
    shown.page.mouse.click(x, y + scale * (row + 0.5) * height / rows)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.few(1)
def test_moves_of_chess_are_clicked_on_the_board(shown, width):
    shown.page.set_viewport_size({"width": width, "height": 1000})
    players = [("player_0", "human", "white", None), ("player_1", "chess", "wild", "random")]
    shown.add_game("duel", CHESS, players)
    shown.reset(1)
    shown.page.click("#play")
    shown.expect("duel", status="waiting", step=0)
    shown.picture("duel", 0)
    squares = shown.card("duel").locator(".squares")
    expect(squares.locator(".first")).to_have_count(10)  # eight pawns, two knights
    click_square(shown, "duel", 1, 7)
    expect(squares.locator(".to")).to_have_count(2)
    # Another piece in its place, and its move.
    click_square(shown, "duel", 4, 6)
    expect(squares.locator(".from")).to_have_count(1)
    click_square(shown, "duel", 4, 4)
    shown.expect("duel", step=2, status="waiting")
    last = shown.player("duel", "player_0").locator("[data-field=said]")
    expect(last).to_have_text("e2e4")
    shown.page.click("#play")


def test_columns_of_connect_four_are_clicked_on_the_board(shown):
    players = [("player_0", "human", "red", None), ("player_1", "baseline", "yellow", "noop")]
    shown.add_game("four", "pettingzoo/classic/connect_four_v3", players)
    shown.reset(1)
    shown.page.click("#play")
    shown.expect("four", status="waiting", step=0)
    shown.picture("four", 0)
    expect(shown.card("four").locator(".squares rect")).to_have_count(7)
    click_square(shown, "four", 5, 2, columns=7, rows=6, left=4 / 99)
    shown.expect("four", status="waiting", step=2)
    action = shown.player("four", "player_0").locator("[data-field=action]")
    expect(action).to_have_text("5")
    shown.page.click("#play")
