"""A server in place of a language model, to try operators of the kind "llm" without one.

python -m parllel.distributed.operators.scripted_llm --port 8095
python -m parllel.distributed.operators.scripted_llm --answer "Action: 2" --answer "Action: 1"

It answers each question of this package's workers with a random legal action, or with the given answers by
turns, until SIGTERM or Ctrl-C. Any name of a model and any key will do.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections.abc import Sequence

from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, and return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m parllel.distributed.operators.scripted_llm",
        description="Answer the questions of operators in place of a language model.",
    )
    parser.add_argument("--port", type=int, default=0, help="default 0: any that is free")
    parser.add_argument(
        "--answer", action="append", metavar="TEXT", help="by turns; default random"
    )
    given = parser.parse_args(arguments)
    rules = None
    if given.answer:
        answers = itertools.cycle(given.answer)
        rules = [Rule(lambda messages: next(answers))]
    ending = {signal.SIGTERM, signal.SIGINT}
    # Before the server's threads are started, as they inherit it: the signal is waited for here.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with ScriptedServer(rules, port=given.port) as server:
        print(f"serving on {server.base_url}", flush=True)
        signal.sigwait(ending)
    return 0


if __name__ == "__main__":
    sys.exit(main())
