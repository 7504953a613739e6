"""The command `parllel operators dashboard`, in a process of its own, for tests."""

from __future__ import annotations

from pathlib import Path

import psutil
from served import Served

SCENES = Path(__file__).with_name("scenes.py")
SQUARES, SLOW = f"{SCENES}:squares", f"{SCENES}:slow"
RPS = f"{SCENES.parent.with_name('rock_paper_scissors.py')}:game"
CARTPOLE = "CartPole-v1"


class DashboardServer(Served):
    """A server that is ready: `url` has the token.

    folder: of its runs.
    """

    def __init__(self, folder, *arguments, port=0):
        command = ("-m", "parllel", "operators", "dashboard", *arguments)
        super().__init__(*command, "--dir", folder, "--port", port)
        # Before that it says where its folder is.
        while not self.url.startswith("http"):
            line = self.process.stdout.readline()
            assert line, self.end(timeout_s=10)
            self.url = line.strip().rpartition(" ")[2]

    def worker(self, operator_id):
        """Return the process of an operator's worker."""
        (found,) = (
            process
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if process.environ().get("OPERATOR_ID") == operator_id
        )
        return found
