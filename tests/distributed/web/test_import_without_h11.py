from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["msgspec", "h11"])
def test_the_error_names_the_extra(missing):
    # None in sys.modules is how Python itself marks a module that must not be found.
    code = f"import sys; sys.modules['{missing}'] = None\nfrom parllel.distributed.web import WebServer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    install = "pip install '.[remote]' in a checkout of parllel"
    assert last_line == f"ImportError: parllel.distributed.web.WebServer needs {missing}: {install}"


def test_neither_torch_nor_ray_is_imported():
    code = (
        "import sys, parllel.distributed.web; parllel.distributed.web.WebServer;"
        "assert not {'torch', 'ray', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_client_imports_nothing_of_a_server():
    code = (
        "import sys, parllel.distributed.web.http_client;"
        "assert not {'uvicorn', 'h11', 'msgspec', 'starlette'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
