from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = ["parllel.torch", "parllel.torch.handler", "parllel.torch.algos.ppo"]


@pytest.mark.parametrize("module", MODULES)
def test_the_error_names_the_extra(module):
    # None in sys.modules is how Python itself marks a module that must not be found.
    code = f"import sys; sys.modules['torch'] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert (
        last_line
        == "ImportError: parllel.torch needs PyTorch: pip install '.[torch]' in a checkout of parllel"
    )


def test_the_rest_does_not_import_torch():
    code = "import sys, parllel.agents, parllel.algos; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_distribution_objects_are_imported_from_torch():
    import pathlib

    import parllel.torch

    folder = pathlib.Path(parllel.torch.__file__).parent
    sources = {path: path.read_text() for path in folder.rglob("*.py")}
    assert len(sources) > 10
    assert [str(path) for path, text in sources.items() if "import distributions" in text] == []
    assert [str(path) for path, text in sources.items() if "from torch.distributions" in text] == []
