"""Files of agents that both packages are given; as a script, what kaggle-environments plays of them.

It imports nothing of this package, as it runs in an environment of its own. Each function returns a name.
"""

from __future__ import annotations

import json
import os
import sys

LIB = """
def agent(observation, configuration):
    return "agent of lib"

def other(observation):
    return "other of lib"
"""
ONE = "def agent(observation):\n    return 'agent'\n"
HELPER = "def helper(observation):\n    return 'helper'\n"
# By name: the source, and whether we refuse it, as the package makes nothing of it either.
FILES = {
    "one": (ONE, False),
    "two": (HELPER + ONE, False),
    "helper after it": (ONE + HELPER, False),
    "alias of an import": ("from lib import agent as _a\n" + HELPER + "agent = _a\n", False),
    "import alone": ("from lib import agent\n", False),
    "import after it": (ONE + "from lib import other\n", False),
    "star": (HELPER + "from lib import *\n", False),
    "module after it": (ONE + "import os\nimport lib\n", False),
    "underscore": (ONE + "def _helper(observation):\n    return '_helper'\n", False),
    "two underscores": (ONE + "def __helper__(observation):\n    return '__helper__'\n", False),
    "bound before": ("agent = None\n" + HELPER + ONE, False),
    "bound and deleted before": ("agent = None\n" + HELPER + "del agent\n" + ONE, False),
    "bound to another": (ONE + HELPER + "helper = agent\n", False),
    "bound to a number": (HELPER + ONE + "agent = 3\n", False),
    "lambda": (HELPER + "agent = lambda observation, configuration: 'lambda'\n", False),
    "several targets": (
        HELPER + "a, b = (lambda observation: 'a'), (lambda observation: 'b')\na = 1\n",
        False,
    ),
    "object that can be called": (
        "class A:\n    def __call__(self, o, c):\n        return 'object'\n" + HELPER + "a = A()\n",
        False,
    ),
    "values after it": (ONE + "LIMIT = 3\nnames = ['a']\ntext = 'x'\n", False),
    "annotations": ("x: int = 3\n" + ONE + "y: int = 4\n", False),
    "script": (ONE + "if __name__ == '__main__':\n" + "    def main(o): return 'main'\n", False),
    "loop": (ONE + "for place in [1, 2]:\n    pass\n", False),
    "loop over functions": (ONE + HELPER + "for last in [helper, agent]:\n    pass\n", False),
    "conditional": (ONE + "try:\n    import nothing_here\nexcept ImportError:\n    pass\n", False),
    "no arguments": (HELPER + "def agent():\n    return 'no arguments'\n", False),
    "any arguments": (HELPER + "def agent(*all):\n    return 'any'\n", False),
    "default": (HELPER + "def agent(o, c=None):\n    return 'default'\n", False),
    "generic method": (
        HELPER
        + "class A:\n    @staticmethod\n    def act(o):\n        return 'static'\nagent = A.act\n",
        False,
    ),
    "decorated": (
        "def twice(f):\n    def g(o, c):\n        return f(o) + ' twice'\n    return g\n"
        + "@twice\n"
        + ONE,
        False,
    ),
    "global of a function": (
        ONE + "def make():\n    global late\n    late = lambda o: 'late'\nmake()\ndel make\n",
        False,
    ),
    "class after it": (ONE + "class Helper:\n    pass\n", True),
    "class with two arguments": (ONE + "class H:\n    def __init__(self, a, b): pass\n", True),
    "dataclass": (
        ONE + "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\n",
        True,
    ),
    "exception": (ONE + "class MyError(Exception):\n    pass\n", True),
    "class in a loop": (ONE + "for kind in [str]:\n    pass\n", True),
    "type alias": (ONE + "from typing import List\nBoard = List[int]\n", True),
    "new type alias": (ONE + "Board = dict[str, int]\n", True),
    "built-in function": (ONE + "from os import getpid\n", True),
    "built-in name": (ONE + "size = len\n", True),
    "imported class": (ONE + "from pathlib import Path\n", True),
    "nothing": ("x = 3\n", True),
    "syntax": ("def agent(o)\n    return 1\n", True),
    "raises": (ONE + "raise ValueError(1)\n", True),
}
NO_ACTION = None


def write(folder):
    """Write all files, and return their paths by name."""
    with open(os.path.join(folder, "lib.py"), "w") as file:
        file.write(LIB)
    paths = {}
    for i, (name, (source, _)) in enumerate(FILES.items()):
        paths[name] = os.path.join(folder, f"agent_{i}.py")
        with open(paths[name], "w") as file:
            file.write(source)
    return paths


def main():
    """Print the action of each file."""
    from kaggle_environments import make, register

    def interpreter(state, env):
        if not env.done:
            state[0].status = "DONE"
        return state

    specification = {
        "name": "named",
        "title": "named",
        "version": "1",
        "agents": [1],
        "observation": {},
        "action": {"type": "string", "default": ""},
        "reward": {"type": ["number", "null"], "default": 0},
        "configuration": {
            "episodeSteps": {"type": "integer", "default": 10},
            "actTimeout": {"type": "number", "default": 5},
        },
    }
    game = {
        "agents": {},
        "html_renderer": lambda env: "",
        "interpreter": interpreter,
        "renderer": lambda state, env: "",
        "specification": specification,
    }
    register("named", game)
    played = {}
    for name, path in write(sys.argv[1]).items():
        env = make("named")
        played[name] = env.run([path])[-1][0]["action"]
    with open(sys.argv[2], "w") as file:
        json.dump(played, file)


if __name__ == "__main__":
    main()
