"""Start of Ray, with the same settings for every side."""

from __future__ import annotations

import logging
from typing import Any

OBJECT_STORE_BYTES = 200 * 2**20


def start_ray(n_workers: int) -> Any:
    """Start Ray on this machine, and return its module."""
    import ray

    ray.init(
        "local",
        num_cpus=n_workers,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    return ray
