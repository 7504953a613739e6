"""`parllel`, whose page receives a SIGTERM as it starts, and loses the exception."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from lost_exceptions import lose_exception_of

from parllel.cli import main, picture_page


class Page(picture_page.PicturePage):
    def start(self):
        super().start()
        lose_exception_of(signal.SIGTERM)


if __name__ == "__main__":
    picture_page.PicturePage = Page
    raise SystemExit(main())
