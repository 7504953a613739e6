"""The examples of the documents run as a reader would run them: alone, or after the block that they name."""

from __future__ import annotations

import configparser
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from script_server import ScriptServer

# A limit for what hangs: a machine that does much else takes its time.
pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
# The first line of a block that needs another one: "# After the block above." or of a heading of the page.
AFTER = re.compile(r'# After the block (?:above|of "(?P<heading>[^"]+)")\.$')


@dataclass(frozen=True)
class Block:
    """A block of Python, with the heading that it stands under."""

    heading: str
    code: str


def blocks_of(text: str) -> list[Block]:
    """Return the Python blocks of a page, in order."""
    found, heading = [], ""
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```|^#+ ([^\n]+)", text, re.M | re.S):
        language, code, title = match.groups()
        if title:
            heading = title
        elif language == "python":
            found.append(Block(heading, code))
    return found


def before(blocks: list[Block], i: int) -> int | None:
    """Return which block has to run before block `i`, or None if that runs alone.

    Raises:
        ValueError: if it names a block that is not there.
    """
    first = blocks[i].code.partition("\n")[0]
    match = AFTER.match(first)
    if match is None:
        if first.startswith("# After"):
            raise ValueError(f"expected '# After the block above.' or of a heading, got {first!r}")
        return None
    heading = match["heading"]
    earlier = [j for j in range(i) if heading in (None, blocks[j].heading)]
    if not earlier:
        raise ValueError(f"no block before this one stands under {heading!r}: {first}")
    return earlier[-1]


def scripts_of(text: str) -> list[str]:
    """Return scripts in which every block runs at least once, none after more than it says it needs."""
    blocks = blocks_of(text)
    parents = [before(blocks, i) for i in range(len(blocks))]
    scripts = []
    for i in range(len(blocks)):
        if i in parents:
            continue  # it runs before another one
        chain, at = [], i
        while at is not None:
            chain.append(blocks[at].code)
            at = parents[at]
        scripts.append("\n".join(reversed(chain)))
    return scripts


def imports_of(scripts: list[str]) -> list[str]:
    """Return the modules that scripts import at their beginning of lines."""
    names = {
        name
        for script in scripts
        for name in re.findall(r"^(?:from|import) ([\w.]+)", script, re.M)
        if name != "__future__"
    }
    return sorted(names)


def texts() -> dict[str, str]:
    """Return the documents by name."""
    return {name: (ROOT / name).read_text() for name in DOCUMENTS}


WITH_CODE = [name for name, text in texts().items() if blocks_of(text)]


def test_there_are_examples():
    assert {"README.md", "docs/your_own.md", "docs/cages.md"} <= set(WITH_CODE)


def test_examples_run(tmp_path):
    contents, scripts = [], []
    for name in WITH_CODE:
        for i, content in enumerate(scripts_of(texts()[name])):
            folder = tmp_path / f"{Path(name).stem}-{i}"
            folder.mkdir()
            contents.append(content)
            scripts.append(folder / f"{Path(name).stem}_{i}.py")
            scripts[-1].write_text(content)
    with ScriptServer(imports_of(contents), "-W", "error") as server:
        for script in scripts:
            done = server.run(script, cwd=script.parent)
            assert done.returncode == 0, f"{script.name}: {done.stderr}"


def test_a_block_names_what_it_comes_after():
    page = """
# Page
```python
a = 1
```
## One
```text
# Not a heading
```
```python
# After the block above.
b = a
```
## Two
```python
# After the block of "Page".
c = a
```
"""
    assert [block.heading for block in blocks_of(page)] == ["Page", "One", "Two"]
    first, one, two = (block.code for block in blocks_of(page))
    assert scripts_of(page) == [f"{first}\n{one}", f"{first}\n{two}"]
    with pytest.raises(ValueError, match="no block before this one stands under 'Three'"):
        scripts_of(page.replace('of "Page"', 'of "Three"'))
    with pytest.raises(ValueError, match=r"expected '# After the block above\.'"):
        scripts_of(page.replace('of "Page".', "before"))


def test_blocks_run_alone(tmp_path):
    scripts = [tmp_path / f"{name}.py" for name in "abc"]
    scripts[0].write_text("import csv\nname = __name__\nassert name == '__main__'\n")
    scripts[1].write_text("print(name, csv)\n")
    scripts[2].write_text("import sys\nprint(1)\nsys.exit('wrong')\n")
    with ScriptServer(["json"]) as server:
        done = [server.run(script, cwd=tmp_path) for script in scripts]
    assert [one.returncode for one in done] == [0, 1, 1]
    assert "NameError: name 'name' is not defined" in done[1].stderr
    assert (done[2].stdout, done[2].stderr) == ("1\n", "wrong\n")


def test_readme_build_script_is_short():
    script = blocks_of(texts()["README.md"])[0].code
    assert len([line for line in script.splitlines() if line.strip()]) <= 25


def test_figures_are_those_of_the_committed_runs():
    sys.path.insert(0, str(ROOT))
    from benchmarks import pages

    for section in pages.sections():
        reports = [pages.load(source) for source in section.sources]
        assert not any(report["settings"]["quick"] for report in reports)
        text = section.page.read_text()
        assert text == section.within(text, *reports)


# The picture of the layers is wider.
@pytest.mark.parametrize("name", sorted({*DOCUMENTS} - {"docs/architecture.md"}))
def test_code_is_not_cut_at_the_edge_of_the_page(name):
    blocks = re.findall(r"^```.*?^```$", texts()[name], re.M | re.S)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 88] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", texts()[name])
    folder = (ROOT / name).parent
    assert [link for link in links if not (folder / link).exists()] == []


def test_all_extras_are_documented():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    cells = re.findall(r"^\| (`[^|]+) \|", texts()["docs/install.md"], re.M)
    documented = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert documented == set(setup["options.extras_require"])


def test_pages_install_extras_that_exist():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    named = {
        extra
        for text in texts().values()
        for extras in re.findall(r'pip install [^\n]*"\.\[([\w,]+)\]"', text)
        for extra in extras.split(",")
    }
    assert {"torch", "video"} <= named <= set(setup["options.extras_require"])


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md"])
def test_a_newcomer_installs_for_a_video_no_more_than_it_needs(name):
    (commands,) = re.findall(r"^(source .*?)^```", texts()[name], re.M | re.S)
    installing, showing = (
        next(i for i, line in enumerate(commands.splitlines()) if line.startswith(word))
        for word in ('pip install --editable ".[video]"', "parllel show")
    )
    assert installing < showing
    assert "make install" not in commands
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    # The encoder, and what draws CartPole.
    assert re.findall(
        r"^[\w-]+(?:\[[\w-]+\])?", setup["options.extras_require"]["video"], re.M
    ) == [
        "imageio-ffmpeg",
        "gymnasium[classic-control]",
    ]


def test_the_tutorial_explains_the_script_of_the_readme():
    readme = blocks_of(texts()["README.md"])[0].code
    parts = blocks_of(texts()["docs/tutorial.md"])
    lines = [line for part in parts for line in part.code.splitlines() if not AFTER.match(line)]
    script = [line for line in readme.splitlines() if line]
    assert [line for line in lines if line][: len(script)] == script


def test_pictures_of_the_documents_are_there_and_all_are_shown():
    shown = set()
    for document in DOCUMENTS:
        path = ROOT / document
        for place in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", path.read_text("utf-8")):
            if not place.startswith("http"):
                shown.add((path.parent / place).resolve())
    assert [path for path in shown if not path.is_file()] == []
    assert set((ROOT / "docs" / "pictures").iterdir()) <= shown
