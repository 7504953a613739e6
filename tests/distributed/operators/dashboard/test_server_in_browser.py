"""The page and the server: reloads, a second page, a server that comes back, a stranger."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from chromium import expect
from dashboard_server import SQUARES, DashboardServer
from shown_board import ShownBoard


def test_a_reload_and_a_second_page_show_the_same(shown, pages, server):
    shown.add("a", "baseline", SQUARES, policy="noop")
    shown.reset(7)
    shown.expect("a", status="ready")
    shown.page.click("#step-all")
    shown.expect("a", step=1)
    drawn = shown.picture("a", 1)
    shown.page.reload()
    shown.expect("a", status="ready", step=1, seed=7, episode_reward=1)
    assert (shown.picture("a", 1) == drawn).all()
    other = ShownBoard(pages.open(server.url))
    other.expect("a", status="ready", step=1, seed=7)
    assert (other.picture("a", 1) == drawn).all()
    # What one requests, both see.
    other.page.click("#step-all")
    for one in (shown, other):
        one.expect("a", step=2)
        assert (one.picture("a", 2) != drawn).any()
    other.page.select_option("#speed", "5")
    expect(shown.page.locator("#speed")).to_have_value("5")
    other.page.click("#play")
    expect(shown.page.locator("#phase")).to_have_attribute("data-phase", "playing")
    shown.page.click("#play")
    expect(other.page.locator("#phase")).to_have_attribute("data-phase", "stopped")


def test_a_stranger_sees_nothing(pages, server):
    address = urlsplit(server.url)
    page = pages.open()
    answer = page.goto(f"http://{address.netloc}/")
    assert answer.status == 401
    assert page.locator("article").count() == 0
    # A page that says how to come in, not what programs are told.
    expect(page.locator("h1")).to_have_text("Token needed")
    expect(page.locator("code").first).to_have_text(f"http://{address.netloc}/?token=…")
    assert "{" not in page.locator("body").inner_text()


def test_the_address_for_other_machines_opens_the_page(pages, tmp_path):
    with DashboardServer(tmp_path, "--host", "0.0.0.0") as server:
        assert "0.0.0.0" not in server.url
        ShownBoard(pages.open(server.url))
        said = [server.process.stderr.readline().strip()]
        if said[0].startswith("from other machines: "):
            ShownBoard(pages.open(said[0].rpartition(" ")[2]))
            said.append(server.process.stderr.readline().strip())
        assert said[-1].startswith("warning: at 0.0.0.0 every machine that can reach this one can")
        # Chromium says that this header is for origins of this machine, or with TLS.
        policy = "The Cross-Origin-Opener-Policy header has been ignored"
        pages.errors[:] = [one for one in pages.errors if not one.startswith(policy)]
        server.process.terminate()
        assert server.end()[0] == 0


@pytest.mark.parametrize("path", ["/", "/#results"])
def test_the_address_does_not_keep_the_token(pages, server, path):
    page = pages.open(server.url)
    expect(page.locator("#connection")).to_have_attribute("data-state", "connected")
    address = urlsplit(page.url)
    assert (address.path, address.query) == ("/", "")
    page.goto(f"http://{address.netloc}{path}")
    expect(page.locator("#connection")).to_have_attribute("data-state", "connected")
