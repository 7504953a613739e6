"""Another spelling of `balrog_worker`; its command line is the same."""

from __future__ import annotations

import sys

from parllel.distributed.operators.workers.balrog_worker import main

if __name__ == "__main__":
    sys.exit(main("barlog_worker"))
