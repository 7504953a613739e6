"""The reference has a page for each package, and names in the prose lead there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))


@pytest.fixture
def name_links(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import name_links

    return name_links


def test_every_package_has_a_page():
    folders = {path.parent for path in (ROOT / "parllel").glob("**/__init__.py")}
    offering = {
        ".".join(folder.relative_to(ROOT).parts)
        for folder in folders
        if "__all__: list[str] = []" not in (folder / "__init__.py").read_text()
    }
    documented = {
        name for page in PAGES for name in re.findall(r"automodule:: (\S+)", page.read_text())
    }
    # The command line is described where it is used, by docs/command_line.md and its own help.
    missing = {
        name
        for name in offering - {"parllel", "parllel.cli"}
        if not any(
            f"{page}.".startswith(f"{name}.") or name.startswith(f"{page}.") for page in documented
        )
    }
    assert not missing
    named = {page.stem for page in PAGES}
    index = (ROOT / "docs" / "reference" / "index.md").read_text()
    listed = index.partition("```{toctree}")[2].splitlines()
    assert named - {"index"} <= set(listed)


def test_pages_begin_with_their_package_and_document_it():
    for page in PAGES:
        title, text = page.read_text().split("\n", 1)
        if page.stem == "index":
            continue
        package = title.removeprefix("# ")
        assert package in sys.modules or __import__(package)
        assert f".. automodule:: {package}" in text


def test_a_name_leads_to_what_it_can_only_mean(name_links):
    names = [
        "parllel.samplers.BasicSampler",
        "parllel.samplers.BasicSampler.collect_batch",
        "parllel.samplers.EvalSampler",
        "parllel.samplers.EvalSampler.collect_batch",
        "parllel.runners.train",
        "parllel.a.Twice",
        "parllel.b.Twice",
    ]
    meant = name_links.endings(names)
    assert meant["BasicSampler"] == meant["samplers.BasicSampler"] == names[0]
    assert meant["BasicSampler.collect_batch"] == names[1]
    assert meant["train"] == meant["parllel.runners.train"] == names[4]
    # Which class, or which module, is not said.
    assert "collect_batch" not in meant
    assert "Twice" not in meant


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("BasicSampler", "BasicSampler"),
        ("publish()", "publish"),
        ("build_cages(parallel=True)", "build_cages"),
        ("a[0]", None),
        ("x == y", None),
        ("pip install .", None),
    ],
)
def test_only_names_are_looked_up(name_links, code, name):
    match = name_links.NAME.match(code)
    assert (match and match[1]) == name
