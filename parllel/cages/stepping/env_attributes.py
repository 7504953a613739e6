"""Set attributes of environments through their wrappers."""

from __future__ import annotations

import difflib
from typing import Any


def set_env_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute where it is found among the wrappers.

    Raises:
        AttributeError: if it is not found, as it may be misspelled; the message lists similar names.
    """
    layer, innermost = env, env
    while layer is not None:
        inner, innermost = getattr(layer, "env", None), layer
        # A wrapper may pass on the attributes of what it wraps, so it is not asked with hasattr.
        own = name in getattr(layer, "__dict__", ()) or hasattr(type(layer), name)
        if own or (inner is None and hasattr(layer, name)):
            # On the layer that has it: set on an outer one, it would hide the value that the environment
            # reads.
            setattr(layer, name, value)
            return
        layer = inner
    # Near names are looked for among those of the innermost environment: wrappers repeat or hide them.
    # It may be beyond `unwrapped`, within an environment that is no wrapper of gymnasium's.
    names = {*dir(getattr(env, "unwrapped", env)), *dir(innermost)}
    near = difflib.get_close_matches(name, sorted(n for n in names if not n.startswith("_")))
    # Refused, as a misspelled name would otherwise be set on a wrapper where nothing ever reads it.
    raise AttributeError(
        f"neither the cage nor its environment {env!r} has an attribute {name!r} to set; near names: "
        f"{near}; define it in the environment's __init__ first"
    )
