from __future__ import annotations

import json
import re
import zlib

import nim  # noqa: F401 - registers the game
import numpy as np
from chromium import expect
from playing import always, script

from parllel.distributed.remote import make
from parllel.distributed.remote.games.position import Position
from parllel.distributed.remote.render_html import _LARGEST, episode_page
from parllel.pictures.png import png_bytes

HOSTILE = "</script><script>document.title = 'taken'</script><!-- \u2028 & \\ \"'"
PRINTED = {"duration": 0.5, "stdout": HOSTILE, "stderr": "<b>loud</b>"}


def data_of(page):
    """Return what the script of a page reads."""
    return json.loads(re.search(r'id="episode">(.*?)</script>', page, re.DOTALL)[1])


def board_page():
    with make("connectx", {"rows": 3, "columns": 3}, info={"TeamNames": [HOSTILE, "two"]}) as env:
        env.run([script(0, 1, 7), script(0, 1)])
        env.logs[1][0].update(PRINTED)
        return env.render("html")


def test_the_page_plays_an_episode(pages, tmp_path):
    (tmp_path / "page.html").write_text(board_page(), "utf-8")
    page = pages.open((tmp_path / "page.html").as_uri())
    expect(page.locator("#title")).to_have_text("ConnectX")
    step, play = page.locator("#step"), page.locator("#play")
    expect(step).to_have_text("0 / 5")
    circles = (
        "atob(document.getElementById('picture').src.split(',')[1]).split('#1c7ed6').length - 1"
    )
    assert page.evaluate(circles) == 0
    page.click("#forward")
    expect(step).to_have_text("1 / 5")
    assert page.evaluate(circles) == 1
    # A picture that the browser could not draw would have no size.
    page.wait_for_function("document.getElementById('picture').naturalWidth > 0")
    # It is in the page as text, and took nothing over.
    assert page.locator("#agents td").first.inner_text() == HOSTILE
    assert page.locator("#logs pre").all_text_contents() == [HOSTILE, "<b>loud</b>"]
    assert page.title() == "ConnectX"
    assert page.evaluate("document.scripts.length") == 2
    first = page.locator("#agents tr").first
    expect(first).to_contain_text("500 ms")
    # Played to its end, where it stops by itself.
    page.evaluate("document.getElementById('speed').value = '60'")
    play.click()
    expect(step).to_have_text("5 / 5")
    expect(play).to_have_text("Play")
    expect(first).to_contain_text("INVALID")
    expect(first).to_contain_text("expected a column from 0 to 2, got 7")
    # Back to where the slider is put, and by keys.
    page.fill("#slider", "2")
    expect(step).to_have_text("2 / 5")
    page.keyboard.press("ArrowLeft")
    expect(step).to_have_text("1 / 5")


def test_a_page_of_pixels_and_one_of_text(pages, tmp_path):
    with make("gymnasium/CartPole-v1", {"seed": 1}) as env:
        env.run([always(0)])
        n = len(env.steps) - 1
        (tmp_path / "pole.html").write_text(env.render("html"), "utf-8")
    page = pages.open(f"{(tmp_path / 'pole.html').as_uri()}#3")
    expect(page.locator("#step")).to_have_text(f"3 / {n}")
    page.wait_for_function("document.getElementById('picture').naturalWidth === 300")
    with make("nim") as env:
        env.step([3, None])
        (tmp_path / "nim.html").write_text(env.render("html"), "utf-8")
    page = pages.open(f"{(tmp_path / 'nim.html').as_uri()}#1")
    assert page.locator("#text").inner_text().strip() == "||||"
    expect(page.locator("#picture")).to_be_hidden()


def test_the_page_asks_for_nothing_and_allows_no_other_script():
    page = board_page()
    assert not re.search(r"(src|href)=|https?://(?!www.w3.org)", page)
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    # Nothing of an agent ends the element that it is in.
    assert page.count("</script>") == 2
    assert data_of(page)["agents"] == [HOSTILE, "two"]


def test_equal_pictures_are_in_the_page_once():
    with make("connectx", {"rows": 3, "columns": 3}) as env:
        env.run([script(0, 7), script(0)])
        data = data_of(env.render("html"))
    # The board stays as it is when a move is refused.
    assert data["picture_of"] == [0, 1, 2, 2]
    assert len(data["pictures"]) == 3


class Noise:
    """A game whose pictures do not compress."""

    def __init__(self):
        self.n = 0

    def picture(self, position):
        self.n += 1
        return np.random.default_rng(self.n).integers(0, 256, (300, 300, 3), np.uint8)


def test_pages_of_many_large_pictures_leave_some_out(monkeypatch):
    monkeypatch.setattr("parllel.distributed.remote.render_html._MAX_BYTES", 3_000_000)
    with make("nim") as env:
        replay = env.to_json()
    game = Noise()
    replay["steps"] = replay["steps"] * 40
    page = episode_page(replay, [], ((game, Position([])) for _ in range(40)))
    assert len(page) < 4_500_000
    shown = data_of(page)["picture_of"]
    # 360 kB each: every fourth or eighth is left, and shown until the next.
    assert len(shown) == 40
    assert shown == sorted(shown)
    assert 3 <= len(set(shown)) <= 10
    assert len(data_of(page)["pictures"]) == len(set(shown))


def test_pictures_are_exact_and_large_ones_are_reduced():
    from parllel.distributed.remote.render_html import _reduced

    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    png = png_bytes(picture)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    length = int.from_bytes(png[33:37], "big")
    lines = np.frombuffer(zlib.decompress(png[41 : 41 + length]), np.uint8).reshape(5, 22)
    # Each line is the difference to the one above.
    np.testing.assert_array_equal(np.cumsum(lines[:, 1:], 0, np.uint8), picture.reshape(5, 21))
    large = np.full((2 * _LARGEST, _LARGEST, 3), 7, np.uint8)
    large[::2] = 9
    assert _reduced(large).shape == (_LARGEST, _LARGEST // 2, 3)
    assert (_reduced(large) == 8).all()
