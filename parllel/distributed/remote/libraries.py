"""Check, on import, that the libraries of the extra `remote` are installed.

They are only looked up here and imported where they are used, since importing them takes longer than
importing this package.
"""

from importlib.util import find_spec

from parllel.errors import install_command

for _library in ("jsonschema", "msgspec", "google.protobuf", "h11"):
    try:
        _found = find_spec(_library)
    except ModuleNotFoundError:  # the parent package google is missing
        _found = None
    if _found is None:
        raise ImportError(
            f"parllel.distributed.remote needs {_library}: {install_command('remote')}"
        )
