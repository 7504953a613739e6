"""The states of random generators that belong to the process rather than to an object."""

from __future__ import annotations

import random
import sys

import numpy as np

from parllel.types import State


def random_state() -> State:
    """Return the states of Python's, numpy's and, if it has been imported, torch's global generators.

    parllel itself does not draw from these, but environments and models of users may. Of torch only the
    generator of the CPU is included.
    """
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    state: State = {
        # An array, as 625 numbers would fill pages of JSON.
        "python": {"version": version, "words": np.array(words, np.uint64), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": np.array(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
    }
    # Not imported for this: what has not been imported has not drawn anything.
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().copy()
    return state


def load_random_state(state: State) -> None:
    """Take back what `random_state` returned."""
    python, legacy = state["python"], state["numpy"]
    words = tuple(int(word) for word in python["words"])
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(
        (
            legacy["name"],
            legacy["keys"],
            legacy["position"],
            legacy["has_gauss"],
            legacy["cached"],
        )
    )
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.from_numpy(np.array(state["torch"], np.uint8)))
