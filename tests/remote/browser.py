"""A headless Chromium that opens pages, for tests."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from contextlib import ExitStack

import pytest
from websockets.sync.client import connect

from parllel.processes import Program
from parllel.types import Closing

LONG_S = 60.0


class Browser(Closing):
    """Open a page and run JavaScript in it, by the DevTools protocol.

    folder: for what the browser writes.
    """

    def __init__(self, folder):
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None:
            pytest.skip("there is no Chromium on this machine")
        self._number = 0
        self.errors = []
        self._program = Program(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *(
                    "--remote-debugging-port=0",
                    f"--user-data-dir={folder}",
                    "--window-size=900,900",
                ),
                "about:blank",
            ],
            # Its cache and its lock files are to be in the folder of the test.
            environment={"HOME": str(folder)},
            lines=False,
        )
        self._closing = ExitStack()
        self._closing.callback(self._program.end)
        try:
            port_file = folder / "DevToolsActivePort"
            self._until(lambda: port_file.exists() and port_file.read_text().count("\n") >= 1)
            port = port_file.read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=LONG_S) as reply:
                pages = [target for target in json.load(reply) if target["type"] == "page"]
            address = pages[0]["webSocketDebuggerUrl"]
            self._socket = self._closing.enter_context(connect(address, max_size=None))
            self._call("Runtime.enable")
            self._call("Page.enable")
        except BaseException:
            self.close()
            raise

    def open(self, path, step=0):
        """Open the page of a file, and wait until its script has run."""
        self._call("Page.navigate", url=f"{path.as_uri()}#{step}")
        self.until("document.readyState === 'complete'")

    def run(self, script):
        """Return the value of an expression, as JSON."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script):
        """Wait until an expression is true."""
        self._until(lambda: self.run(script))

    def text(self, selector):
        """Return the text of an element as it is shown."""
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def _call(self, method, **params):
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(LONG_S))
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _until(self, condition):
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert not self._program.died(), "the browser ended"
            assert time.monotonic() < deadline, "it did not come true"
            time.sleep(0.02)

    def close(self):
        """End the browser."""
        self._closing.close()
