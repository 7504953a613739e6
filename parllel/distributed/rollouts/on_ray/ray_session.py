"""The connection of this process with Ray."""

# no address, connected       the Ray of whoever connected: `close` does nothing
# no address, not connected   a Ray started here: `close` disconnects and ends it
# an address                  a cluster: `close` disconnects

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
# Time-out of the test connection to a head node.
_CONNECT_S = 5.0
_ATTEMPTS = 2


class RaySession(Closeable):
    """Uses an existing Ray, or starts one on this machine and shuts it down afterwards.

    A Ray that this process is already connected with, or a cluster given by its address, keeps running after
    `close`.

    Args:
        address: "host:port" of a cluster, or "auto" for the cluster of this machine. "auto" uses
            RAY_ADDRESS, or else the last `ray start`, or else any Ray running here. None uses the
            Ray that this process is connected with, or starts a new one on this machine.
        num_cpus: number of CPUs of a Ray started here. Default: the number of cores.
        object_store_bytes: size of the shared memory of a Ray started here, in bytes.

    Raises:
        ConnectionError: if there is no cluster at the address, or Ray cannot be started here.
        InsufficientMemoryError: if there is too little shared memory.
        ValueError: for an invalid address, or any address if this process is already connected.
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
                    "RaySession: address: expected None, because this process is already connected "
                    f"to Ray, got {address!r}"
                )
            return
        # Output of other processes would disturb the progress bar; it is in Ray's log folder anyway.
        arguments: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            # Only a look: other programs may take the memory before Ray does.
            _check_shared_memory(object_store_bytes)
            arguments |= {"num_cpus": num_cpus, "object_store_memory": object_store_bytes}
            _start(**arguments, include_dashboard=False)
        else:
            _check_address(address)
            try:
                ray.init(address, **arguments)
            # A missing token raises an error of Ray, and a wrong one a failed connection.
            except (ConnectionError, RuntimeError, RayError) as error:
                raise ConnectionError(
                    f"RaySession: address: expected the address of a Ray cluster, got {address!r}: "
                    f"{why(error)}; if the cluster was started with a token, set RAY_AUTH_MODE=token, and "
                    "RAY_AUTH_TOKEN_PATH to its file"
                ) from None
        self._connected = True
        self._printed = _print_for_workers(False)

    @property
    def address(self) -> str:
        """The "host:port" of the cluster."""
        found: str = ray.get_runtime_context().gcs_address
        return found

    def close(self) -> None:
        """Disconnect, and shut down a Ray that was started here. Idempotent."""
        if self._connected and not self._closed:
            # First: a second call must not end a Ray that somebody started after this one.
            self._closed = True
            ray.shutdown()
            _print_for_workers(self._printed)


def _start(**arguments: Any) -> None:
    """Start a Ray on this machine."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init("local", **arguments)
            return
        # Ray raises a plain Exception if one of its processes is not up within some seconds.
        except Exception as error:
            ray.shutdown()  # ends the processes that are up
            # A busy machine may need a second attempt, for which the files are in memory.
            if attempt == _ATTEMPTS:
                raise ConnectionError(
                    f"RaySession: Ray did not start here in {attempt} attempts: {why(error)}"
                ) from error


def _print_for_workers(enabled: bool) -> bool:
    """Enable or disable Ray's printing for other processes. Returns the setting before."""
    # `log_to_driver=False` does not stop the page that is printed for each dead actor, nor does any public
    # setting.
    worker: Any = ray_worker
    before: bool = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = enabled
    return before


def _check_shared_memory(needed: int) -> None:
    """Raise unless enough is free. Ray would silently use a file instead, which is far slower."""
    if os.path.isdir(_SHARED_MEMORY):
        free = shutil.disk_usage(_SHARED_MEMORY).free
        if free < needed:
            raise InsufficientMemoryError(
                f"RaySession: object_store_bytes: expected {needed:,} bytes of shared memory to be "
                f"free in {_SHARED_MEMORY}, got {free:,}; mount a larger one (docker run "
                "--shm-size), or lower object_store_bytes"
            )


def _check_address(address: str) -> None:
    """Raise unless a server listens there. Ray would retry for a minute."""
    shown = repr(address)
    if address == "auto":
        address = _found_address()
        shown += f" (RAY_ADDRESS, or else the last `ray start`, names {address!r})"
    host, _, port = address.rpartition(":")
    # "ray://" is Ray's client, with which actors could not be placed on this process's node.
    if not host or "/" in host or not port.isdecimal():
        raise ValueError(
            f"RaySession: address: expected 'host:port' of a cluster's head node, or 'auto', got {shown}"
        )
    try:
        # Closed at once, as it only shows that somebody listens. Ray connects by itself.
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"RaySession: address: expected the address of a Ray cluster, got {shown}: {error}"
        ) from None


def _found_address() -> str:
    """Return the address that Ray resolves "auto" to."""
    # There is no public function for this.
    services: Any = ray_services
    try:
        found: str = services.canonicalize_bootstrap_address_or_die("auto")
    except ConnectionError:
        raise ConnectionError(
            "RaySession: address='auto': expected exactly one running Ray cluster on this machine, "
            "found none or several; start one with `ray start --head`, or give the host:port of a "
            "cluster"
        ) from None
    return found
