from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from parllel.testing import Service


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[str]:
    """A folder for what Ray writes, and its token; processes that tests start use it too."""
    # The paths of sockets are limited to some hundred characters: those of pytest are longer.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    token = os.path.join(folder, "token")
    with open(token, "w") as file:
        file.write(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_TOKEN_PATH", token)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def ray_here(ray_folder: str) -> Iterator[None]:
    """Ray on this machine, with two CPUs to share out, for all tests that ask for it."""
    from parllel.rollouts.on_ray import RaySession

    # What it has in this process comes with the first calls, and some of it never goes.
    kept = ("socket:*", "anon_inode:*", f"{ray_folder}/*")
    service = Service("ray", threads="ray_*", keeps=kept, grace_s=20.0)
    with service:
        # For what Ray starts, now or later; what tests start beside it is not Ray's.
        with pytest.MonkeyPatch.context() as patch:
            for name, value in service.environment.items():
                patch.setenv(name, value)
            session = RaySession(num_cpus=2, object_store_bytes=200 * 2**20)
        with session:
            service.adopt_new()
            yield
