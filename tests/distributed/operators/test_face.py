from __future__ import annotations

import subprocess
import sys


def test_what_a_worker_imports_is_light():
    code = (
        "import sys; import parllel.distributed.operators as o; o.serve, o.Decision;"
        "print([m for m in sys.modules if m.partition('.')[0] in"
        " ('torch', 'ray', 'numba', 'matplotlib', 'PIL', 'h11', 'httpx2')"
        " or m in ('parllel.cages', 'parllel.policies.policy_loading', 'parllel.buffers',"
        " 'parllel.system.processes')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_is_named_with_the_extra():
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "import parllel.distributed.operators as o\n"
        "try:\n o.serve\nexcept ImportError as error:\n print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    command = "pip install '.[operators]' in a checkout of parllel"
    assert done.stdout.strip() == f"parllel.distributed.operators.serve needs msgspec: {command}"
