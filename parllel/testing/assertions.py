"""Let pytest show the values of failed assertions of the suites, in any project that inherits one.

pytest rewrites the assertions of test files and of conftest.py alone, so that those of an installed package
fail without saying what they compared. It takes further modules as long as they have not been imported, so
this one is imported before all others of the package.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Programs that use a dummy environment outside of pytest need not import it for this.
if "pytest" in sys.modules:
    _names = (f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("*.py"))
    # pytest warns of modules that have been imported already, as this one has.
    sys.modules["pytest"].register_assert_rewrite(
        *(name for name in _names if name not in sys.modules)
    )
