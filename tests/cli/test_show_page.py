"""`parllel show --page`, with a real browser and with WebSockets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pygame")
pytest.importorskip("websockets")
from chromium import expect
from cli_process import command
from websockets.sync.client import connect

from parllel.cli.picture_page import PicturePage
from parllel.pictures.png import png_bytes


@contextmanager
def shown(run, *more):
    """Start `parllel show --page`; return the process and the page's address."""
    process = subprocess.Popen(
        command("show", run, "--page", *more),
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith("serving on"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        yield process, lines[-1].split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_episodes_in_a_browser(run, pages, call):
    with shown(run, "--episodes", 2, "--fps", 200) as (process, url):
        # Nothing is played unseen.
        time.sleep(0.5)
        assert process.poll() is None
        page = pages.open(url)
        expect(page.get_by_role("status")).to_contain_text("mean return")
        said = page.get_by_role("status").inner_text()
        assert page.get_by_role("img").evaluate("image => image.naturalWidth") == 600
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    # The page says what the terminal does, which are the episodes of a video.
    expected = call("show", run, "--episodes", 2)[1].splitlines()
    assert said.splitlines() == expected[1:-1]
    assert output.splitlines()[-3:] == expected[1:-1]


def test_pause_step_and_play_in_a_browser(run, pages):
    with shown(run, "--episodes", 1000) as (_, url):
        page = pages.open(url)
        status = page.get_by_role("status")
        expect(status).to_contain_text(re.compile("seed \\d+, step [1-9]"))
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Play")).to_be_visible()
        page.wait_for_timeout(200)  # a picture may be under way
        seed, step = map(int, re.findall(r"\d+", status.inner_text()))
        page.wait_for_timeout(300)
        assert status.inner_text() == f"seed {seed}, step {step}"
        page.get_by_role("button", name="Step").click()
        after = re.compile(f"seed {seed}, step {step + 1}$|seed {seed + 1}, step 0$")
        expect(status).to_have_text(after)
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(status).not_to_have_text(after)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_and_without_a_viewer(run, number, status):
    for watched in (False, True):
        with shown(run, "--episodes", 1000) as (process, url):
            if watched:
                with connect(f"ws{url[4:]}/pictures", proxy=None) as socket:
                    while not isinstance(socket.recv(timeout=30), bytes):
                        pass
                    process.send_signal(number)
                    process.wait(30)
            else:
                process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        assert (process.returncode, "Traceback" in errors) == (status, False)


def test_a_signal_whose_exception_is_lost_ends_it_without_a_viewer(run):
    program = Path(__file__).with_name("show_that_loses_sigterm.py")
    done = subprocess.run(
        [sys.executable, program, "show", run, "--page"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert ("serving on" in done.stdout, done.stderr) == (True, "")


class Viewer:
    """What a page receives."""

    def __init__(self, socket):
        self.socket = socket
        self.pictures, self.states = [], []

    def until(self, condition):
        while not condition(self):
            message = self.socket.recv(timeout=30)
            if isinstance(message, bytes):
                self.pictures.append(message)
            else:
                self.states.append(json.loads(message))


@contextmanager
def viewer(page):
    with connect(f"ws{page._server.url[4:]}/pictures", proxy=None) as socket:
        yield Viewer(socket)


def test_a_viewer_receives_the_pictures_as_they_are(capsys):
    frames = np.random.default_rng(0).integers(0, 256, (5, 7, 9, 3), np.uint8)
    with PicturePage("a & b", fps=1000) as page:
        page.start()
        assert capsys.readouterr().out.startswith(f"serving on {page._server.url}\n")
        with viewer(page) as one, viewer(page) as two:
            for i, frame in enumerate(frames):
                page.show(frame, f"picture {i}")
                for each in (one, two):
                    each.until(
                        lambda v, i=i: v.states and v.states[-1]["caption"] == f"picture {i}"
                    )
                    assert each.pictures == [png_bytes(f) for f in frames[: i + 1]]
            began = time.monotonic()
            page.end("all")
            assert time.monotonic() - began < 8
            one.until(lambda v: v.states[-1]["ended"])
            assert one.states[-1] == {"caption": "all", "paused": False, "ended": True}


def test_it_is_played_at_its_rate_and_only_while_somebody_watches():
    frame = np.zeros((2, 2, 3), np.uint8)
    with PicturePage("t", fps=20) as page:
        page.start()
        with viewer(page):
            began = time.monotonic()
            for _ in range(5):
                page.show(frame, "")
            assert time.monotonic() - began >= 4 / 20
        deadline = time.monotonic() + 30
        while page._viewers:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(_AlarmError), alarm_in(0.5):
            page.show(frame, "")


class _AlarmError(Exception):
    pass


@contextmanager
def alarm_in(seconds):
    def ring(number, frame):
        raise _AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_cannot_be_shown_in_a_page(mistake, run):
    assert "--port: expected only with --page" in mistake("show", run, "--port", 80)
    assert "--video: expected without --page" in mistake("show", run, "--page", "--video", "a.gif")
    assert "port: expected an int from 0 to 65535" in mistake("show", run, "--page", "--port", -1)
    assert "fps: expected a number above 0, got 0" in mistake("show", run, "--page", "--fps", 0)
    with PicturePage("taken") as page:
        page.start()
        port = page._server.url.rpartition(":")[2]
        assert port in mistake("show", run, "--page", "--port", port)
