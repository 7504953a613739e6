from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import parllel
from parllel.cli import main
from parllel.errors import install_command

ROOT = Path(__file__).parent.parent
BUILD = "from setuptools import build_meta; print(build_meta.build_editable('.'))"


def test_type_checkers_find_an_editable_install(tmp_path):
    source = tmp_path / "source"
    for name in ("parllel", "patterns"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD], cwd=source, capture_output=True, check=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata = archive.read(f"parllel_rl-{parllel.__version__}.dist-info/METADATA").decode()
        # They read .pth files, in which a line is a folder; a finder would be a module, and a line of code.
        (pth,) = names
        lines = archive.read(pth).decode().splitlines()
    assert pth.endswith(".pth")
    assert lines == [str(source), str(source / "patterns")]
    for folder, package in zip(lines, ("parllel", "parllel_patterns"), strict=True):
        assert (Path(folder) / package / "py.typed").is_file()
    assert f"\nName: parllel-rl\nVersion: {parllel.__version__}\n" in metadata


def test_nobody_is_told_to_install_a_project_of_a_stranger():
    # On the package index, `parllel` is not ours.
    said = re.compile(r"""pip install (-\S+ )*['"]?parllel(?!-rl)""")
    places = ["README.md", "parllel", "patterns", "docs", "examples", "benchmarks"]
    tracked = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True)
    sources = [ROOT / name for name in tracked.stdout.split()]
    if not sources:
        pytest.skip("not a checkout of git")
    found = [
        str(path)
        for path in sources
        if path.suffix in (".py", ".md") and said.search(path.read_text())
    ]
    assert found == []
    assert said.search("pip install 'parllel[torch]'")
    assert said.search("pip install parllel")
    assert not said.search("pip install 'parllel-rl[torch]'")


def test_messages_name_extras_that_exist():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    named = set()
    for path in [*(ROOT / "parllel").rglob("*.py"), *(ROOT / "patterns").rglob("*.py")]:
        named |= set(re.findall(r"""install_command\(["'](\w+)""", path.read_text()))
    assert {"torch", "operators", "plot"} <= named <= extras
    assert install_command("torch") == "pip install '.[torch]' in a checkout of parllel"


def test_the_version_is_said(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"parllel {parllel.__version__}\n"
    assert parllel.__version__.count(".") == 2


def test_a_citation_names_this_version():
    (version,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert version == parllel.__version__
