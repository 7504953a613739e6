"""The page in the dark and in the light, on a phone and on a desk."""

from __future__ import annotations

import pytest
from chromium import expect
from dashboard_server import CARTPOLE, RPS, SQUARES
from shown_board import ShownBoard

PHONE = {"width": 360, "height": 740}
BRIGHTNESS = """() => {
    const color = getComputedStyle(document.documentElement).backgroundColor;
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number);
    return (r + g + b) / 765;
}"""


@pytest.fixture
def filled(shown):
    """A board with some cards, one of which has an unusually long name."""
    shown.add(
        "a-name-that-is-longer-than-a-card-of-a-phone-is-wide", "baseline", SQUARES, policy="noop"
    )
    shown.add("random", "baseline", CARTPOLE, policy="random")
    shown.add("me", "human", SQUARES)
    shown.reset(1)
    shown.expect("me", status="ready")
    shown.do("me", "step")
    shown.expect("me", status="waiting")
    return shown


def is_too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_nothing_is_wider_than_a_phone(filled, pages, server):
    page = ShownBoard(pages.open(server.url, viewport=PHONE)).page
    expect(page.locator("#cards > article")).to_have_count(3)
    assert not is_too_wide(page)
    page.click("#add")
    assert not is_too_wide(page)
    page.check("#add-game")
    assert not is_too_wide(page)
    page.click("#add-cancel")
    page.click("#tab-results")
    page.locator("#experiments-list [data-run]").first.click()
    expect(page.locator("#results-detail[data-run]")).to_be_visible()
    assert not is_too_wide(page)


def test_it_is_dark_in_the_dark_and_light_in_the_light(pages, server):
    brightness = {}
    for scheme in ("dark", "light"):
        page = ShownBoard(pages.open(server.url, color_scheme=scheme)).page
        brightness[scheme] = page.evaluate(BRIGHTNESS)
    assert brightness["dark"] < 0.3
    assert brightness["light"] > 0.8
    # The switch goes before what the system says, and is kept.
    seen = set()
    for _ in range(3):
        page.click("#theme")
        seen.add(page.locator("html").get_attribute("data-theme"))
    assert seen == {"auto", "light", "dark"}
    while page.locator("html").get_attribute("data-theme") != "dark":
        page.click("#theme")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(BRIGHTNESS) < 0.3


COLUMNS = "node => getComputedStyle(node).gridTemplateColumns.split(' ').length"
BOARDS = {"chess": 8, "connect_four": 7}  # squares beside each other


def columns_of(page):
    return page.locator("#cards").evaluate(COLUMNS)


def test_a_desk_shows_as_many_cards_as_are_wished_for(shown, pages, server):
    page = shown.page
    page.set_viewport_size({"width": 1280, "height": 900})
    shown.add("one", "baseline", SQUARES, policy="noop")
    assert columns_of(page) == 4
    page.select_option("#density", "small")
    assert columns_of(page) >= 6
    page.reload()
    expect(page.locator("#density")).to_have_value("small")
    expect(shown.card("one")).to_be_visible()
    assert columns_of(page) >= 6
    page.select_option("#density", "large")
    assert columns_of(page) == 3
    # Another browser's is its own.
    other = ShownBoard(pages.open(server.url, viewport={"width": 1280, "height": 900}))
    expect(other.page.locator("#density")).to_have_value("medium")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.few(1)
def test_squares_of_a_board_are_large_enough_to_click(shown, width):
    page = shown.page
    for name in BOARDS:
        players = [(f"player_{i}", "baseline", f"{name}-{i}", "random") for i in range(2)]
        if name == "chess":
            players = [(seat, "chess", one, policy) for seat, _, one, policy in players]
        shown.add_game(
            name, f"pettingzoo/classic/{name}_v{'6' if name == 'chess' else '3'}", players
        )
    page.set_viewport_size({"width": width, "height": 800})
    shown.reset(1)
    for name in BOARDS:
        shown.expect(name, status="ready")
    for density in ("small", "medium", "large"):
        if page.locator("#density").is_visible():
            page.select_option("#density", density)
        for name, n in BOARDS.items():
            shown.card(name).scroll_into_view_if_needed()
            shown.picture(name, 0)
            box = shown.field(name, "frame").bounding_box()
            # The picture keeps its shape within this box.
            across = min(box["width"], box["height"] * (1 if name == "chess" else 7 / 6))
            assert across / n >= 40, (density, name, box)
        assert not is_too_wide(page)


def test_players_of_a_wide_card_are_beside_each_other(shown):
    red, blue = ("red", "baseline", "rock", "noop"), ("blue", "baseline", "any", "random")
    shown.add_game("hands", RPS, [red, blue])
    shown.page.set_viewport_size({"width": 1280, "height": 800})
    tops = [shown.player("hands", one).bounding_box()["y"] for one in ("red", "blue")]
    assert tops[0] == tops[1]
