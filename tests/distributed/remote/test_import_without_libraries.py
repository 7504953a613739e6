from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("library", "named"),
    [("msgspec", "msgspec"), ("h11", "h11"), ("google", "google.protobuf")],
)
def test_the_error_names_the_extra(library, named):
    code = f"import sys; sys.modules[{library!r}] = None; import parllel.distributed.remote"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last_line = done.stderr.strip().splitlines()[-1]
    command = "pip install '.[remote]' in a checkout of parllel"
    assert last_line == f"ImportError: parllel.distributed.remote needs {named}: {command}"


def test_neither_torch_nor_ray_is_imported():
    code = "import sys, parllel.distributed.remote; print([n for n in ('torch', 'ray') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
