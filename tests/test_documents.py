"""The examples of the documents run as a reader would run them: copied into a script."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks_of(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)


WITH_CODE = [name for name in DOCUMENTS if blocks_of(name)]


def test_there_are_examples():
    assert {"README.md", "docs/your_own.md", "docs/cages.md"} <= set(WITH_CODE)


@pytest.mark.parametrize("name", WITH_CODE)
def test_examples_run(name, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("\n".join(blocks_of(name)))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr


def test_readme_build_script_is_short():
    script = blocks_of("README.md")[0]
    assert len([line for line in script.splitlines() if line.strip()]) <= 25


def test_figures_of_the_readme_are_those_of_the_committed_run():
    sys.path.insert(0, str(ROOT))
    from benchmarks import figures as foundation
    from benchmarks.end_to_end import report as end_to_end
    from benchmarks.peers import figures as peers

    readme = (ROOT / "README.md").read_text()
    written = 0
    for module in (foundation, peers, end_to_end):
        section = module.SECTION
        if not section.results.exists():
            assert section.begin + section.end in readme  # nothing is said without results
            continue
        report = json.loads(section.results.read_text())
        assert not report["settings"]["quick"]
        assert readme == section.within(readme, report)
        written += 1
    assert written


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
