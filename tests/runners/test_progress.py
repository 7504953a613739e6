from __future__ import annotations

import io

import pytest
from rich.console import Console

from parllel.runners import progress
from parllel.runners.progress import ProgressBar


@pytest.mark.parametrize("has_widgets", [False, True])
@pytest.mark.parametrize("is_jupyter", [False, True])
def test_notebooks_without_widgets_show_no_bar(is_jupyter, has_widgets, monkeypatch):
    """Rich would warn, and print the bar once more for each change."""
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if has_widgets else None)
    bar = ProgressBar(Console(file=io.StringIO(), force_jupyter=is_jupyter), 100)
    assert bar._progress.disable == (is_jupyter and not has_widgets)
