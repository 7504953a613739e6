"""Alternative spelling of `balrog_worker`, with the same command line."""

from __future__ import annotations

import sys

from parllel.distributed.operators.workers.balrog_worker import main

if __name__ == "__main__":
    sys.exit(main("barlog_worker"))
