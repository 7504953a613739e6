"""Games on cards: players act in turns, or at the same time; one dies."""

from __future__ import annotations

from chromium import expect
from dashboard_server import RPS

CHESS = "pettingzoo/classic/chess_v6"


def test_a_game_of_turns_and_one_of_simultaneous_moves_share_the_board(shown):
    white, black = (
        ("player_0", "chess", "white", "random"),
        ("player_1", "chess", "black", "random"),
    )
    shown.add_game("chess", CHESS, [white, black], max_steps=6)
    red, blue = ("red", "baseline", "rock", "noop"), ("blue", "baseline", "any", "random")
    shown.add_game("hands", RPS, [red, blue])
    shown.reset(4)
    for name in ("chess", "hands"):
        shown.expect(name, status="ready", step=0, seed=4)
    shown.page.click("#step-all")
    for name in ("chess", "hands"):
        shown.expect(name, status="ready", step=1)
    # One of them has moved; both of them have.
    expect(shown.player("chess", "player_0").locator("[data-field=action]")).not_to_be_empty()
    for player in ("red", "blue"):
        expect(shown.player("hands", player).locator("[data-field=action]")).not_to_be_empty()
    expect(shown.player("hands", "red").locator("[data-field=action]").first).to_have_text("0")
    shown.page.select_option("#speed", "max")
    shown.page.click("#play")
    shown.expect("chess", status="ended", step=6)
    shown.expect("hands", status="ended")
    totals = [
        float(shown.player("hands", player).locator("[data-field=total-reward]").inner_text())
        for player in ("red", "blue")
    ]
    assert sum(totals) == 0


def test_the_dialog_has_its_players_before_the_server_has_answered_again(shown):
    shown.add_game(
        "one", RPS, [("red", "baseline", "a", "noop"), ("blue", "baseline", "b", "noop")]
    )
    waiting = []
    shown.page.route("**/api/kinds", lambda route: waiting.append(route))
    shown.page.click("#add")
    players = shown.page.locator("#add-dialog [name=player-id]")
    expect(players).to_have_count(2)
    shown.page.click("#add-player")
    expect(players).to_have_count(3)
    shown.until(lambda: waiting)
    with shown.page.expect_response("**/api/kinds"):
        waiting.pop().continue_()
    shown.page.unroute("**/api/kinds")
    expect(players).to_have_count(3)
    shown.page.click("#add-dialog [data-close]")


def test_the_death_of_a_player_names_it_on_the_card_of_its_game(shown, server):
    for name in ("one", "two"):
        red = ("red", "baseline", f"{name}-red", "noop")
        shown.add_game(name, RPS, [red, ("blue", "baseline", f"{name}-blue", "random")])
    shown.reset(4)
    for name in ("one", "two"):
        shown.expect(name, status="ready")
    server.worker("one-blue").kill()
    shown.page.click("#step-all")
    shown.expect("two", status="ready", step=1)
    shown.expect("one", status="died")
    expect(shown.field("one", "message")).to_contain_text("one-blue")
    shown.card("one").locator(".trouble [data-do=restart]").click()
    expect(shown.card("one")).not_to_have_attribute("data-status", "died")
    shown.do("one", "reset")
    shown.expect("one", status="ready", step=0)
    shown.expect("two", step=1)
