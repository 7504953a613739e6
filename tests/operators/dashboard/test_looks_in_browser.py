"""The page in the dark and in the light, on a phone and on a desk."""

from __future__ import annotations

import pytest
from chromium import expect
from dashboard_server import CARTPOLE, SQUARES
from shown_board import ShownBoard

# Each part of it has a time-out of its own.
pytestmark = pytest.mark.timeout(180)

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
