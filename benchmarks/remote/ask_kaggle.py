"""Act by the client of kaggle-environments; run by the Python of its own environment.

python -m benchmarks.remote.ask_kaggle URL
"""

import sys

from kaggle_environments.agent import UrlAgent  # type: ignore[import-not-found]
from kaggle_environments.utils import structify  # type: ignore[import-not-found]

from benchmarks.remote.questions import CONFIGURATION, answer_turns, expected, observation

client = UrlAgent(sys.argv[1], "rps")
configuration = structify(CONFIGURATION)


def act(step: int) -> int:
    """Ask once."""
    action = client(structify(observation(step)), configuration)
    assert action == expected(step), action
    return 1


answer_turns(act)
