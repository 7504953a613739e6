"""The connection of this process with Ray."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Any

import ray
import ray._private.services as ray_services
import ray._private.worker as ray_worker
from ray.exceptions import RayError

from parllel.distributed.rollouts.on_ray.answers import why
from parllel.errors import InsufficientMemoryError
from parllel.types import Closeable

_SHARED_MEMORY = "/dev/shm"
_CONNECT_S = 5.0
_ATTEMPTS = 2


class RaySession(Closeable):
    """Use the Ray that there is, or start one on this machine and end it afterwards.

    A Ray that this process is connected with already stays as it is, and goes on after `close`. So does a
    cluster that is connected with by its address.

    Args:
        address: "host:port" of a cluster, or "auto" for the one that this machine is part of: that of
            RAY_ADDRESS, else of the last `ray start`, else any Ray that runs here. None: the Ray that this
            process is connected with, else one that is started here.
        num_cpus: that a Ray started here has to share out; by default as many as there are cores.
        object_store_bytes: shared memory of a Ray started here.

    Raises:
        ConnectionError: if there is no cluster at the address, or none can be started here.
        InsufficientMemoryError: if there is not as much shared memory.
        ValueError: if the address is something else, or is given to a process that is connected already.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: int | None = None,
        object_store_bytes: int = 200 * 2**20,
    ) -> None:
        self._connected = self._closed = False
        if ray.is_initialized():
            if address is not None:
                raise ValueError(
                    "RaySession: address: expected None, as this process is connected with Ray, "
                    f"got {address!r}"
                )
            return
        # What other processes say would go through a progress bar; it is in Ray's log folder.
        arguments: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            _check_shared_memory(object_store_bytes)
            arguments |= {"num_cpus": num_cpus, "object_store_memory": object_store_bytes}
            _start(**arguments, include_dashboard=False)
        else:
            _check_address(address)
            try:
                ray.init(address, **arguments)
            # No token where one is asked for is an error of Ray, and a wrong one a failed connection.
            except (ConnectionError, RuntimeError, RayError) as error:
                raise ConnectionError(
                    f"RaySession: address: expected that of a Ray cluster, got {address!r}: {why(error)}"
                    "; one that was started with a token is to be given the same: set RAY_AUTH_MODE=token, "
                    "and RAY_AUTH_TOKEN_PATH to its file"
                ) from None
        self._connected = True
        self._printed = _print_for_workers(False)

    @property
    def address(self) -> str:
        """The "host:port" of the cluster."""
        found: str = ray.get_runtime_context().gcs_address
        return found

    def close(self) -> None:
        """Disconnect, and end the Ray that was started here; may be called twice."""
        if self._connected and not self._closed:
            self._closed = True
            ray.shutdown()
            _print_for_workers(self._printed)


def _start(**arguments: Any) -> None:
    """Start a Ray on this machine."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init("local", **arguments)
            return
        # Ray raises just that, if one of its processes is not there within some seconds.
        except Exception as error:
            ray.shutdown()  # those that are
            # On a busy machine it may be later, and the second time most is in memory.
            if attempt == _ATTEMPTS:
                raise ConnectionError(
                    f"RaySession: Ray did not start here in {attempt} attempts: {why(error)}"
                ) from error


def _print_for_workers(enabled: bool) -> bool:
    """Let Ray print for other processes or not, and return what it did before."""
    # `log_to_driver` leaves out a page of text for each actor that dies; there is no public way to stop it.
    worker: Any = ray_worker
    before: bool = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = enabled
    return before


def _check_shared_memory(needed: int) -> None:
    """Raise unless there is as much: Ray would take a file instead, which is slower by far."""
    if os.path.isdir(_SHARED_MEMORY):
        free = shutil.disk_usage(_SHARED_MEMORY).free
        if free < needed:
            raise InsufficientMemoryError(
                f"RaySession: object_store_bytes: expected {needed:,} bytes of shared memory to be free in "
                f"{_SHARED_MEMORY}, got {free:,}; mount a larger one (docker run --shm-size), or lower it"
            )


def _check_address(address: str) -> None:
    """Raise unless something listens there: Ray would try for a minute."""
    said = repr(address)
    if address == "auto":
        address = _found_address()
        said += f" (RAY_ADDRESS, or else the last `ray start`, names {address!r})"
    host, _, port = address.rpartition(":")
    # "ray://" is Ray's client, whose actors could not be placed beside this process.
    if not host or "/" in host or not port.isdecimal():
        raise ValueError(
            f"RaySession: address: expected 'host:port' of a cluster's head node, or 'auto', got {said}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"RaySession: address: expected that of a Ray cluster, got {said}: {error}"
        ) from None


def _found_address() -> str:
    """Return what "auto" stands for."""
    # There is no public way to ask.
    services: Any = ray_services
    try:
        found: str = services.canonicalize_bootstrap_address_or_die("auto")
    except ConnectionError:
        raise ConnectionError(
            "RaySession: address: expected 'auto' to stand for one Ray that runs on this machine, found "
            "none or several; start one with `ray start --head`, or give the host:port of a cluster"
        ) from None
    return found
