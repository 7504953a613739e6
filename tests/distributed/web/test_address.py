"""Where a server listens: on loopback, or with a token; and one sentence if it cannot."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from parllel.distributed.web import ServerSettings, WebServer, build_app
from parllel.distributed.web.address import is_loopback

TOKEN = "a-token-of-24-characters"


def server(**settings):
    return WebServer(build_app([], ServerSettings(**settings)))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("127.255.255.255", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost", False),  # a name, which is not an address before it is resolved
    ],
)
def test_loopback_is_127_and_1(address, expected):
    assert is_loopback(address) is expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_a_token_is_required(host):
    expected = (
        f"^{host} can be reached from other machines, so clients need a token. Pass "
        "--token-file FILE, or listen on 127.0.0.1$"
    )
    with pytest.raises(ValueError, match=expected):
        server(host=host)


def test_a_name_is_judged_by_what_it_means(monkeypatch):
    def resolve(host, port, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ValueError, match=r"^localhost can be reached from other machines"):
        server(host="localhost")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_on_loopback_none_is(host):
    with server(host=host) as started:
        address = started.url.removeprefix("http://").rsplit(":", 1)[0]
        assert is_loopback(address)
    assert started.settings.token is None


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_a_server_of_all_addresses_has_urls_for_this_machine_and_others(
    client, host, shown, capsys
):
    try:
        started = server(host=host, token=TOKEN)
    except OSError as error:  # a machine without IPv6
        pytest.skip(str(error))
    with started:
        assert started.url.startswith(f"http://{shown}:")
        assert client(started).get("/health").is_success
        port = started.url.rsplit(":", 1)[1]
        assert client(started).get("/health", headers={"host": f"10.1.2.3:{port}"}).is_success
        started.announce("/?token=x")
        said = capsys.readouterr()
        assert said.out == f"serving on {started.url}/?token=x\n"
        warning = said.err.splitlines()[-1]
        assert warning.startswith(
            f"warning: at {host} every machine that can reach this one can connect."
        )
        assert "http://0.0.0.0" not in said.out + said.err
        if started.network_url is None:
            pytest.skip("this machine has no network")
        assert f"from other machines: {started.network_url}/?token=x\n" in said.err
        address = started.network_url.removeprefix("http://").rsplit(":", 1)[0].strip("[]")
        assert not is_loopback(address)
        assert client(started, base_url=started.network_url).get("/health").is_success


def test_a_server_of_this_machine_warns_of_nothing(capsys):
    with server() as started:
        started.announce()
        assert started.network_url is None
        assert capsys.readouterr() == (f"serving on {started.url}\n", "")


def test_a_port_in_use_is_named():
    with server() as first:
        port = int(first.url.rsplit(":", 1)[1])
        expected = (
            f"127.0.0.1:{port} is in use. Stop the program that listens there, "
            "or choose another --port"
        )
        with pytest.raises(OSError, match=expected) as caught:
            server(port=port)
        assert caught.value.errno == errno.EADDRINUSE
    with server(port=port) as second:
        assert second.url == first.url


def test_a_name_that_means_nothing_is_named():
    with pytest.raises(OSError, match=r"'none\.invalid' cannot be resolved to an address"):
        server(host="none.invalid")
    with pytest.raises(OSError, match="cannot be resolved to an address"):
        server(host="a" * 64 + ".example")


def test_an_address_of_another_machine_is_named():
    with pytest.raises(
        OSError, match=r"192\.0\.2\.1 is not an address of this machine. Pass one of"
    ):
        server(host="192.0.2.1", token=TOKEN)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_privileged_port_is_named(monkeypatch, code):
    def refuse(self, address):
        raise OSError(code, os.strerror(code))

    # As root, and in containers, there are none.
    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(
        OSError, match=r"127\.0\.0\.1:80 is reserved for privileged users. Choose a --port"
    ):
        server(port=80)
