"""A headless Chromium, driven by Playwright, which tests share: each opens pages of its own.

    this thread   tests ── page.click() ──▶ greenlet with an event loop ── pipe ──▶ driver (node)
    driver        starts Chromium, speaks to it, answers

Playwright's loop counts as running in this thread from its start to its end, between calls too. Other tests
of the process have loops of their own, so it counts as running only while a test has pages.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parllel.testing import Service
from parllel.types import Closeable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

LONG_MS = 30_000
# The headless shell first: the others draw the menus and bars of a window that nobody sees, for each page.
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
# Chromium says so itself of what a server refuses, and of one that is gone.
_NO_ERRORS = re.compile(r"Failed to load resource|WebSocket connection to \S+ failed")


def expect(of: Any) -> Any:
    """Return Playwright's assertions about a page or a locator, which wait until they hold."""
    from playwright.sync_api import expect  # takes long to import, and may not be there

    return expect(of)


class Chromium(Closeable):
    """One browser for the tests of this process.

    folder: its home.  Skips the test if there is no Playwright, or no Chromium, on this machine.
    """

    def __init__(self, folder: Path) -> None:
        # Nothing is downloaded: Playwright's own builds are not wanted.
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            pytest.skip("there is no Chromium on this machine")
        api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
        api.expect.set_options(timeout=LONG_MS)
        self._closing = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Playwright leaves the threads of its loop to the collector.
        service = self._closing.enter_context(Service("chromium", threads="asyncio_*"))
        try:
            playwright = self._closing.enter_context(api.sync_playwright())
            self._loop = asyncio.get_running_loop()
            self._browser: Browser = playwright.chromium.launch(
                executable_path=program,
                args=["--no-sandbox", "--disable-gpu"],  # the sandbox refuses root
                env={**os.environ, **service.environment, "HOME": str(folder)},
            )
            self._closing.callback(self._browser.close)
            service.adopt_new()
        except BaseException:
            self.close()
            raise
        asyncio._set_running_loop(None)

    @contextmanager
    def pages(self) -> Iterator[Pages]:
        """Lend the browser to a test.

        Raises:
            AssertionError: at its end, if a page had an error that the test did not take out of `errors`.
        """
        asyncio._set_running_loop(self._loop)
        pages = Pages(self._browser)
        try:
            yield pages
        finally:
            pages.close()
            asyncio._set_running_loop(None)
        assert pages.errors == []

    def close(self) -> None:
        """End the browser."""
        asyncio._set_running_loop(self._loop)
        self._loop = None
        try:
            self._closing.close()
        finally:
            asyncio._set_running_loop(None)


class Pages(Closeable):
    """Open pages, each in a context of its own, as if each were another person's browser.

    Attributes:
        errors: what scripts of pages raised, or wrote to the console as errors.
    """

    def __init__(self, browser: Browser) -> None:
        self.errors: list[str] = []
        self._browser = browser
        self._closing = ExitStack()

    def open(self, url: str | None = None, **options: Any) -> Page:
        """Open a page.

        options: of a context, as `viewport={"width": 360, "height": 700}` and `color_scheme="dark"`.
        """
        context = self._browser.new_context(**options)
        self._closing.callback(context.close)
        context.set_default_timeout(LONG_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        if url is not None:
            page.goto(url)
        return page

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error" and not _NO_ERRORS.match(said.text):
            self.errors.append(said.text)

    def close(self) -> None:
        """Close all pages."""
        self._closing.close()
