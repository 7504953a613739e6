"""The browser of the tests does no harm to the tests around it."""

from __future__ import annotations

import asyncio
import os

import pytest
from chromium import expect


def test_a_page_does_what_it_is_asked_to(pages):
    page = pages.open(viewport={"width": 360, "height": 700}, color_scheme="dark")
    page.set_content("<button onclick='this.textContent = innerWidth'>wide</button>")
    page.click("button")
    expect(page.locator("button")).to_have_text("360")
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_errors_of_a_page_are_kept(pages):
    page = pages.open()
    page.set_content("<script>console.error('loud'); throw new Error('thrown')</script>")
    assert sorted(pages.errors) == ["loud", "thrown"]
    pages.errors.clear()


def test_other_loops_run_while_the_browser_lives(chromium):
    async def nothing():
        return 4

    with chromium.pages() as pages:
        pages.open()
        assert asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    assert asyncio.run(nothing()) == 4
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with chromium.pages() as pages:
        page = pages.open("data:text/html,<p>still there")
        expect(page.locator("p")).to_have_text("still there")
