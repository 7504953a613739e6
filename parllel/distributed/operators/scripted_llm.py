"""Command line of a scripted server that replaces a language model, for trying operators of the kind "llm".

python -m parllel.distributed.operators.scripted_llm --port 8095
python -m parllel.distributed.operators.scripted_llm --answer "Action: 2" --answer "Action: 1"

It answers each question of our workers with a random legal action, or with the given answers in rotation,
until SIGTERM or Ctrl-C. It accepts any model name and any key.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections.abc import Sequence

from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal arrives. Returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m parllel.distributed.operators.scripted_llm",
        description="Serve scripted answers in place of a language model.",
    )
    parser.add_argument("--port", type=int, default=0, help="default 0: any free port")
    parser.add_argument(
        "--answer",
        action="append",
        metavar="TEXT",
        help="repeat for several, given in rotation; default: random legal actions",
    )
    options = parser.parse_args(arguments)
    rules = None
    if options.answer:
        answers = itertools.cycle(options.answer)
        rules = [Rule(lambda messages: next(answers))]
    signals = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server starts its threads, which inherit the mask: `sigwait` below must get the
    # signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with ScriptedServer(rules, port=options.port) as server:
        print(f"serving on {server.base_url}", flush=True)
        signal.sigwait(signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
