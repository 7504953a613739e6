"""Name the packages: they lie in two folders. Everything else is in setup.cfg."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent


class Folders:
    """Have both folders searched by a plain .pth file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, wheel: Any, files: list[str], mapping: Mapping[str, str]) -> None:
        lines = f"{ROOT}\n{ROOT / 'patterns'}\n"
        wheel.writestr(f"__editable__.{self._name}.pth", lines.encode())

    def __enter__(self) -> Folders:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class TypedEditableWheel(editable_wheel):
    """Let mypy and pyright find an editable install: they read .pth files, but run no import hooks.

    Hooks are what setuptools makes of packages in two folders. Should it rename the method, it does so again.
    """

    def _select_strategy(self, name: str, *more: Any) -> Any:
        return super()._select_strategy(name, *more) if self.mode else Folders(name)


setup(
    packages=find_packages(".", include=["parllel*"]) + find_packages("patterns"),
    package_dir={"parllel_patterns": "patterns/parllel_patterns"},
    cmdclass={"editable_wheel": TypedEditableWheel},
)
