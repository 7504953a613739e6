"""Eight cards of 256 x 256 pictures at ten a second, for minutes: memory, slow pages, and what it costs.

PARLLEL_SOAK_S is how long; ten minutes by default.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
from drawn_env import make
from private_memory import private_memory
from rest_and_socket import FrameReader, RestServer

SECONDS = float(os.environ.get("PARLLEL_SOAK_S", "600"))
CARDS = [f"card-{number}" for number in range(8)]
ENV = f"{Path(__file__).parent / 'drawn_env.py'}:make"
PER_S = 10.0
MAX_GROWTH = 4 << 20
SLOW_PAUSE_S = 0.5


class SlowPage(threading.Thread):
    """A page that takes a message twice a second.

    Attributes:
        behind: versions between each state that it got and the newest that `quick` had then.
    """

    def __init__(self, served, quick):
        super().__init__(daemon=True)
        self._served, self._quick = served, quick
        self.ended = threading.Event()
        self.behind = []
        self.reader = None
        self.error = None

    def run(self):
        try:
            # Its library holds one message, and then reads no more.
            with self._served.socket(max_queue=1, ping_interval=None) as socket:
                self.reader = FrameReader(socket, CARDS[:2])
                while not self.ended.is_set():
                    if self.reader.take() is None:
                        newest = self._quick.state["version"]
                        self.behind.append(newest - self.reader.state["version"])
                    time.sleep(SLOW_PAUSE_S)
        except BaseException as error:
            self.error = error


def cpu_s(process):
    """Return the CPU seconds of a process and of all its descendants."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system
    return total


def own_cpu_s(n_steps, n_frames):
    """Return the CPU seconds that the environments need by themselves for so much."""
    env, n = make("rgb_array"), 300
    env.reset(seed=0)
    begun = time.process_time()
    for _ in range(n):
        env.step(env.action_space.sample())
        env.render()
    both = (time.process_time() - begun) / n
    begun = time.process_time()
    for _ in range(n):
        env.step(env.action_space.sample())
    step = (time.process_time() - begun) / n
    return n_steps * step + n_frames * (both - step)


def n_of(state):
    steps = sum(len_of(card) for card in state["cards"])
    return steps, sum(card["frame"] or 0 for card in state["cards"])


def len_of(card):
    totals = card["totals"]
    return round((totals["mean_length"] or 0) * totals["n_ended"]) + card["step"]


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 300)
def test_eight_cards_at_ten_frames_a_second(tmp_path):
    with RestServer(tmp_path) as served:
        server = psutil.Process(served.process.pid)
        for card in CARDS:
            served.launch(card, env_id=ENV)
        served.wish("reset", seed=0)
        served.cards_where(lambda card: card["status"] == "ready", 120)
        served.wish("speed", steps_per_s=PER_S)
        served.wish("play", autoplay=True)
        with served.socket() as socket:
            quick = FrameReader(socket, CARDS)
            quick.take()
            slow = SlowPage(served, quick)
            slow.start()
            _take_for(quick, min(30.0, SECONDS / 5))  # what is allocated once
            begun, first = time.monotonic(), served.state()
            cpu_begun, server_begun = cpu_s(server), sum(server.cpu_times()[:2])
            frames_begun = sum(quick.frames.values())
            memory, lags = [], []
            while time.monotonic() - begun < SECONDS:
                _take_for(quick, min(5.0, SECONDS / 20), lags)
                memory.append(private_memory(server.pid))
            passed = time.monotonic() - begun
            cpu = cpu_s(server) - cpu_begun
            server_cpu = sum(server.cpu_times()[:2]) - server_begun
            last = served.state()
            frames = sum(quick.frames.values()) - frames_begun
        slow.ended.set()
        slow.join(30)
        n_steps, n_frames = (b - a for a, b in zip(n_of(first), n_of(last), strict=True))
        per_s = (last["version"] - first["version"]) / passed
        behind_s = [n / per_s for n in slow.behind]
        own = own_cpu_s(n_steps, n_frames)
        third = len(memory) // 3 or 1
        growth = median(memory[-third:]) - median(memory[:third])
        asked = time.monotonic()
        served.wish("stop")
        stop_s = time.monotonic() - asked
        print(
            f"\n{passed:.0f} s, {n_steps} steps, {n_frames} frames drawn ({n_frames / passed / 8:.1f}/s a "
            f"card), {frames} came ({frames / passed / 8:.1f}/s a card); newest minus shown: median "
            f"{median(lags)}, most {max(lags)}; slow page: {sum(slow.reader.frames.values())} frames, most "
            f"missed between two {max(slow.reader.most_missed.values())}, states {median(behind_s):.1f} s "
            f"old, at most {max(behind_s):.1f}\n"
            f"server {median(memory) / 2**20:.1f} MiB private, growth {growth / 2**20:+.2f} MiB\n"
            f"CPU: {cpu / passed:.2f} cores, of these the server {server_cpu / passed:.2f}; environments "
            f"alone {own / passed:.2f}, beyond {(cpu - own) / passed:.2f}\n"
            f"stop answered in {stop_s * 1e3:.0f} ms"
        )
        assert served.terminate()[0] == 0
    if slow.error is not None:
        raise slow.error
    assert growth < MAX_GROWTH
    # Of its two messages a second some are frames; one more may wait in its library.
    assert median(behind_s) < 10 * SLOW_PAUSE_S
    # The slow page skips, and what it gets is the newest: the quick one keeps up beside it.
    assert max(slow.reader.most_missed.values()) > 3
    assert frames > 0.5 * n_frames
    assert median(lags) <= 1


def _take_for(reader, seconds, lags=None):
    """Take what comes; note how many numbers frames are behind the newest of the last state."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        taken = reader.take()
        if taken is not None and lags is not None and reader.state is not None:
            newest = {card["id"]: card["frame"] for card in reader.state["cards"]}
            lags.append(max(0, newest[taken[0]["card"]] - taken[0]["number"]))
