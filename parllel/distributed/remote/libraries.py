"""Look for the libraries of the extra, on import.

They are imported where they are used: all together they take longer than this package.
"""

from importlib.util import find_spec

from parllel.errors import install_command

for _library in ("jsonschema", "msgspec", "google.protobuf", "h11"):
    try:
        _found = find_spec(_library)
    except ModuleNotFoundError:  # there is no google
        _found = None
    if _found is None:
        raise ImportError(
            f"parllel.distributed.remote needs {_library}: {install_command('remote')}"
        )
