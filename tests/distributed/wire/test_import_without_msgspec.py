from __future__ import annotations

import subprocess
import sys


def test_the_error_names_the_extra():
    # None in sys.modules is how Python itself marks a module that must not be found.
    code = "import sys; sys.modules['msgspec'] = None; import parllel.distributed.wire"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    command = "pip install '.[wire]' in a checkout of parllel"
    assert last_line == f"ImportError: parllel.distributed.wire needs msgspec: {command}"
