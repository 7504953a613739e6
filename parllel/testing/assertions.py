"""Registers the suites for pytest's assertion rewriting, in any project that inherits one.

pytest rewrites assertions only in test files and conftest.py, so assertions of an installed package would
fail without showing the compared values. Further modules can be registered until they are imported, so this
module is imported before all others of the package.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Programs that use a dummy environment outside of pytest do not need to import pytest.
if "pytest" in sys.modules:
    _names = (f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("*.py"))
    # pytest warns about modules that are already imported, such as this one.
    sys.modules["pytest"].register_assert_rewrite(
        *(name for name in _names if name not in sys.modules)
    )
