"""The notebook of examples/, executed as Jupyter does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parllel.testing.leak_guard import LeakGuard

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "target.ipynb"
# In another process, as the client keeps an event loop and sockets.
EXECUTE = """
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=150, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[2] + "/executed.ipynb")
"""


def outputs_of(cell):
    """Return the text that a cell shows."""
    found = []
    for output in cell.get("outputs", []):
        found.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(found)


def test_the_notebook_runs_with_workers_and_shows_what_it_does(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    with LeakGuard():
        done = subprocess.run(
            [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(tmp_path)],
            # A back end that is set there would replace the one that shows pictures in notebooks.
            env={name: value for name, value in os.environ.items() if name != "MPLBACKEND"},
            capture_output=True,
            text=True,
            timeout=170,
        )
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    shown = [outputs_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    everything = "\n".join(shown)
    assert (
        "BasicSampler(T=64, B=8)\n  cages             [SynchronizedProcessCage(8 x Target)]"
        in everything
    )
    assert "env.observation            <RotatingManagedMemoryArray (64, 8, 1)" in everything
    assert "evaluation/return" in everything
    assert "warning" not in everything.lower()  # of rich, for example, without widgets
    first, *_, last = map(float, re.findall(r"evaluation/return +│ +(-[\d.]+)", everything))
    assert last > first + 2
    assert any("image/png" in str(cell.get("outputs")) for cell in notebook.cells)


def test_the_notebook_is_kept_without_outputs():
    assert '"outputs": []' in NOTEBOOK.read_text()
    assert '"output_type"' not in NOTEBOOK.read_text()
