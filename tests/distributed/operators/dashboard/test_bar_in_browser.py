"""The bar of the page: Play becomes Pause, Step all keeps all in step, nothing is live without a server."""

from __future__ import annotations

import signal
from urllib.parse import urlsplit

from chromium import expect
from dashboard_server import RPS, SQUARES, DashboardServer
from shown_board import ShownBoard

COLOUR = "node => getComputedStyle(node, '::before').backgroundColor"


def add(shown, name, **env_kwargs):
    shown.add(name, "baseline", SQUARES, policy="noop", env_kwargs=env_kwargs)


def test_play_becomes_pause_by_mouse_and_by_keyboard(shown, pages, server):
    add(shown, "a")
    shown.reset(0)
    shown.expect("a", status="ready")
    other = ShownBoard(pages.open(server.url))
    buttons = [one.page.locator("#play") for one in (shown, other)]
    for button in buttons:
        expect(button).to_have_accessible_name("Play")
    left = shown.page.locator("#step-all").bounding_box()["x"]
    buttons[0].click()
    for button in buttons:
        expect(button).to_have_accessible_name("Pause")
    # What is beside it stays where it is, under the pointer.
    assert shown.page.locator("#step-all").bounding_box()["x"] == left
    expect(shown.page.locator("#step-all")).to_be_disabled()
    shown.until(lambda: shown.number("a", "step") > 1)
    buttons[1].focus()
    other.page.keyboard.press("Enter")
    for button in buttons:
        expect(button).to_have_accessible_name("Play")
    expect(shown.page.locator("#phase")).to_have_attribute("data-phase", "stopped")
    at = shown.number("a", "step")
    other.page.keyboard.press("Space")
    expect(buttons[0]).to_have_accessible_name("Pause")
    shown.until(lambda: shown.number("a", "step") > at)
    buttons[0].click()
    expect(buttons[1]).to_have_accessible_name("Play")


def test_four_clicks_on_step_all_are_four_steps_of_quick_and_slow_ones(shown):
    add(shown, "slow", step_s=0.5)
    add(shown, "quick")
    shown.add("me", "human", SQUARES)
    shown.reset(0)
    for name in ("slow", "quick", "me"):
        shown.expect(name, status="ready")
    for _ in range(4):
        shown.page.click("#step-all")
    expect(shown.page.locator("#phase")).to_contain_text("left")
    seen = set()

    def have_all():
        both = (shown.number("slow", "step"), shown.number("quick", "step"))
        seen.add(both)
        return both == (4, 4)

    shown.until(have_all)
    # Read one after the other, the second may be of a later moment.
    assert all(-1 <= quick - slow <= 2 for slow, quick in seen)
    shown.expect("me", status="ready", step=0)
    # Pause takes back what has not begun.
    for _ in range(4):
        shown.page.click("#step-all")
    expect(shown.page.locator("#play")).to_have_accessible_name("Pause")
    shown.page.click("#play")
    expect(shown.page.locator("#play")).to_have_accessible_name("Play")
    expect(shown.page.locator("#phase")).to_have_text("Stopped")
    assert shown.number("slow", "step") < 8


def expect_live(shown, name):
    expect(shown.card(name)).not_to_have_attribute("data-shown", "offline")
    expect(shown.page.locator("#play")).to_be_enabled()


def expect_offline(shown, name, live_colour):
    """Wait until a card looks and reads as what it was, not what it is."""
    expect(shown.page.locator("#connection")).to_have_attribute("data-state", "reconnecting")
    expect(shown.field(name, "status")).to_have_text("Offline")
    chip = shown.card(name).locator(".chip").first
    shown.until(lambda: chip.evaluate(COLOUR) != live_colour)
    for button in ("#play", "#step-all", "#reset-all"):
        expect(shown.page.locator(button)).to_be_disabled()
    expect(shown.page.locator("#phase")).not_to_contain_text("Playing")


def test_nothing_looks_live_without_the_server_and_all_heals_with_it(pages, tmp_path):
    with DashboardServer(tmp_path) as server:
        address = urlsplit(server.url)
        shown = ShownBoard(pages.open(server.url))
        add(shown, "a")
        red, blue = ("red", "baseline", "rock", "noop"), ("blue", "baseline", "any", "random")
        shown.add_game("hands", RPS, [red, blue])
        shown.reset(0)
        shown.expect("a", status="ready")
        shown.expect("hands", status="ready")
        player = shown.player("hands", "red").locator("[data-field=status]")
        expect(player).to_have_text("Ready")
        shown.page.click("#play")
        shown.until(lambda: shown.number("a", "step") > 1)
        live = shown.card("a").locator(".chip").first.evaluate(COLOUR)
        # It hangs, and no connection is closed.
        server.process.send_signal(signal.SIGSTOP)
        try:
            expect_offline(shown, "a", live)
        finally:
            server.process.send_signal(signal.SIGCONT)
        expect_live(shown, "a")
        at = shown.number("a", "step")
        shown.until(lambda: shown.number("a", "step") > at)
        # The page loses its network.
        shown.page.context.set_offline(True)
        expect_offline(shown, "a", live)
        shown.page.context.set_offline(False)
        expect_live(shown, "a")
        server.process.terminate()
        server.end()
        expect_offline(shown, "a", live)
        expect(player).to_have_text("Offline")
    board = tmp_path / "board"
    with DashboardServer(tmp_path, "--board", board, port=address.port) as server:
        # The same token, so that the page need not be opened anew.
        assert server.url.endswith(address.query)
        expect_live(shown, "a")
        shown.expect("a", step=0)
        shown.reset(3)
        shown.expect("a", status="ready", seed=3)
        shown.page.click("#step-all")
        shown.expect("a", step=1)
        server.process.terminate()
        assert server.end()[0] == 0
