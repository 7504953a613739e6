"""A small Kafka broker for tests and first steps: librdkafka's mock cluster as a separate program.

    python -m parllel.testing.mock_kafka

Its first line is its address, on loopback. Then it reads commands, a line each, and answers each with `ok` or
`error ...`; it ends with its input. `MockKafka` starts it and speaks to it.

    advertise HOST PORT           name another address to clients, such as that of a proxy
    topic NAME PARTITIONS         create a topic; topics that clients ask for appear by themselves, with four
    refuse-topic NAME CODE        answer all that concerns a topic with an error of the protocol
    down | up                     end all connections and accept none; accept them again
    delay MILLISECONDS            answer later
    errors API_KEY CODE COUNT     answer the next requests of a kind with an error of the protocol
    versions API_KEY FIRST LAST   offer these versions of a kind of request; -1 -1: none

It keeps 5 MB for each partition, in memory. It has no transactions and no access control, and takes any topic
name. librdkafka is the one that comes with the `confluent_kafka` package (extra `kafka`).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from parllel.errors import install_command

_BROKER = 1  # the id of the only one
_PRODUCER = 0  # the type of client that carries the cluster
_ERROR_BYTES = 512


def library_path() -> str:
    """Return the path of the librdkafka that the `confluent_kafka` package uses.

    Raises:
        ImportError: if there is none.
    """
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise ImportError(
            f"the mock broker is part of confluent-kafka: {install_command('kafka')}",
            name="confluent_kafka",
        )
    package = os.path.dirname(spec.origin)
    # Where the tools that repair wheels put libraries, on Linux and Windows, and on macOS.
    for folder in (f"{package}.libs", os.path.join(package, ".dylibs")):
        found = sorted(glob.glob(os.path.join(glob.escape(folder), "librdkafka*")))
        if found:
            return found[0]
    found_by_name = ctypes.util.find_library("rdkafka")
    if found_by_name is None:
        raise ImportError(f"no librdkafka beside {package}, nor among the libraries of the system")
    return found_by_name


class MockCluster:
    """A cluster of one broker in this process; it ends with the process.

    Raises:
        ImportError: if librdkafka is missing.
        RuntimeError: if it makes no client or cluster, with what it says.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(library_path())
        said = ctypes.create_string_buffer(_ERROR_BYTES)
        # Of a client without a broker to connect to, 3 (errors) is all that is worth reading.
        conf = self._function("conf_new", ctypes.c_void_p)()
        self._function("conf_set", ctypes.c_int)(
            ctypes.c_void_p(conf), b"log_level", b"3", said, ctypes.c_size_t(_ERROR_BYTES)
        )
        client = self._function("new", ctypes.c_void_p)(
            _PRODUCER, ctypes.c_void_p(conf), said, ctypes.c_size_t(_ERROR_BYTES)
        )
        cluster = client and self._function("mock_cluster_new", ctypes.c_void_p)(
            ctypes.c_void_p(client), 1
        )
        if not cluster:
            raise RuntimeError(f"librdkafka: no mock cluster: {said.value.decode()}")
        self._cluster = ctypes.c_void_p(cluster)

    @property
    def address(self) -> str:
        """The broker's address, HOST:PORT."""
        bootstraps = self._function("mock_cluster_bootstraps", ctypes.c_char_p)
        return str(bootstraps(self._cluster).decode())

    def obey(self, command: str) -> None:
        """Execute a command line (see the module docstring).

        Raises:
            ValueError: if there is no such command, or its arguments are wrong.
            RuntimeError: if the cluster refuses it.
        """
        match command.split():
            case ["advertise", host, port]:
                name = self._function("mock_broker_set_host_port", None)
                name(self._cluster, _BROKER, host.encode(), int(port))
            case ["topic", name, partitions]:
                self._ask("topic_create", name.encode(), int(partitions), 1)
            case ["refuse-topic", name, code]:
                refuse = self._function("mock_topic_set_error", None)
                refuse(self._cluster, name.encode(), int(code))
            case ["down"]:
                self._ask("broker_set_down", _BROKER)
            case ["up"]:
                self._ask("broker_set_up", _BROKER)
            case ["delay", milliseconds]:
                self._ask("broker_set_rtt", _BROKER, int(milliseconds))
            case ["errors", api_key, code, count]:
                errors = (ctypes.c_int * int(count))(*[int(code)] * int(count))
                push = self._function("mock_push_request_errors_array", None)
                push(
                    self._cluster, ctypes.c_int16(int(api_key)), ctypes.c_size_t(int(count)), errors
                )
            case ["versions", api_key, first, last]:
                versions = (ctypes.c_int16(int(number)) for number in (api_key, first, last))
                self._ask("set_apiversion", *versions)
            case _:
                raise ValueError(f"no such command, or wrong arguments: {command!r}")

    def _ask(self, name: str, *arguments: object) -> None:
        code = self._function(f"mock_{name}", ctypes.c_int)(self._cluster, *arguments)
        if code:
            explained = self._function("err2str", ctypes.c_char_p)(code)
            raise RuntimeError(f"{name}: {explained.decode()}")

    def _function(self, name: str, result: type | None) -> Callable[..., Any]:
        function = self._library[f"rd_kafka_{name}"]  # made anew at each look-up by index
        function.restype = result
        return function


def main() -> int:
    """Serve until the input ends."""
    try:
        cluster = MockCluster()
    except (ImportError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(cluster.address, flush=True)
    for line in sys.stdin:
        try:
            cluster.obey(line)
            print("ok", flush=True)
        except (ValueError, RuntimeError) as error:
            print(f"error {error}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
