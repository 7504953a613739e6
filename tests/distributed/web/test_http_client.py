from __future__ import annotations

import gzip
import multiprocessing
import os
import socket
import ssl
import subprocess
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from answering import Answering, reply
from waiting import until

from parllel.distributed.web import http_client
from parllel.distributed.web.http_client import HttpClient, HttpError

BODY = b'{"action": 1}'
HEADS = {
    "kept": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY),
    "closed": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY),
    "without a length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    "old": b"HTTP/1.0 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_replies_are_read_however_the_connection_ends(head):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                # The body comes later than the headers, which say that the connection ends.
                connection.sendall(head)
                connection.sendall(BODY)

        answering = threading.Thread(target=answer)
        answering.start()
        with HttpClient(f"http://127.0.0.1:{server.getsockname()[1]}/") as client:
            reply = client.post(b"{}", {}, 20.0)
        answering.join()
    assert (reply.status, reply.body) == (200, BODY)


def test_a_name_that_nobody_resolves_costs_no_more_than_the_deadline(monkeypatch):
    # Whether name servers answer is not for a test to choose, so the system's function is held up.
    answered, asked = threading.Event(), []
    look_up = socket.getaddrinfo

    def slow(host, *args, **more):
        asked.append(host)
        assert answered.wait(60)
        return look_up("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Answering(lambda body: reply('{"action": 2}')) as server:
        url = f"http://agent.of-this-test.example:{server.port}/"
        with HttpClient(url) as client:
            for _ in range(3):
                with pytest.raises(TimeoutError, match=r"no reply within 0\.2 s"):
                    client.post(b"{}", {}, 0.2)
            # One thread waits, however often it is asked.
            assert asked == ["agent.of-this-test.example"]
            answered.set()
            assert client.post(b"{}", {}, 60.0).status == 200
    until(lambda: not any(thread.name == "look-up" for thread in threading.enumerate()))


def test_a_name_without_an_address_is_an_error():
    with (
        HttpClient("http://no-such-host.invalid/") as client,
        pytest.raises(HttpError, match="cannot be reached"),
    ):
        client.post(b"{}", {}, 60.0)


def test_a_look_up_that_cannot_start_is_begun_anew_by_the_next_request(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with (
        Answering(lambda body: reply("[]")) as server,
        HttpClient(f"http://localhost:{server.port}/") as client,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                client.post(b"{}", {}, 20.0)
        assert client.post(b"{}", {}, 20.0).body == b"[]"


def test_a_redirect_is_a_reply():
    found = reply("", status="302 Found", kind="Text/HTML; charset=x", head="Location: /there\r\n")
    with Answering(lambda body: found) as server, HttpClient(server.url) as client:
        got = client.post(b"{}", {}, 60.0)
    assert (got.status, got.headers["Location"], got.content_type) == (302, "/there", "text/html")
    assert len(server.requests) == 1


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_reply_that_comes_packed_all_the_same_is_limited_as_what_it_holds(pack):
    kind = (
        "Content-Encoding: gzip\r\n" if pack is gzip.compress else "Content-Encoding: deflate\r\n"
    )
    held = b"x" * 100_000
    with Answering(lambda body: reply(pack(held), head=kind)) as server:
        with HttpClient(server.url, max_bytes=100_000) as client:
            assert client.post(b"{}", {}, 60.0).body == held
        assert server.requests[0][1]["accept-encoding"].strip() == "identity"
        with (
            HttpClient(server.url, max_bytes=99_999) as client,
            pytest.raises(HttpError, match="its reply has more than 99999 bytes") as raised,
        ):
            client.post(b"{}", {}, 60.0)
        assert not raised.value.may_pass


def test_a_reply_without_the_body_that_it_announces_is_cut():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"

    def head_and_end():
        yield head
        raise OSError

    with (
        Answering(lambda body: head_and_end()) as server,
        HttpClient(server.url) as client,
        pytest.raises(HttpError, match="IncompleteRead") as raised,
    ):
        client.post(b"{}", {}, 60.0)
    assert raised.value.may_pass


def test_cancelling_ends_what_another_thread_waits_for():
    asked, ended = threading.Event(), threading.Event()

    def answer(body):
        asked.set()
        assert ended.wait(30)

    with Answering(answer) as server, ThreadPoolExecutor() as pool:
        client = HttpClient(server.url)
        waiting = pool.submit(client.post, b"{}", {}, 60.0)
        assert asked.wait(30)
        client.cancel()
        client.cancel()
        with pytest.raises(HttpError):
            waiting.result(30)
        ended.set()
        with pytest.raises(HttpError, match=r"used after close\(\)"):
            client.post(b"{}", {}, 60.0)


def test_cancelling_ends_the_wait_for_a_name(monkeypatch):
    asked, answered = threading.Event(), threading.Event()

    def slow(host, *args, **more):
        asked.set()
        assert answered.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ThreadPoolExecutor() as pool:
        client = HttpClient("http://another.of-this-test.example/")
        waiting = pool.submit(client.post, b"{}", {}, 60.0)
        assert asked.wait(30)
        client.cancel()
        with pytest.raises(HttpError, match="cancelled"):
            waiting.result(30)
    answered.set()
    until(lambda: not any(thread.name == "look-up" for thread in threading.enumerate()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_does_not_wait_for_a_look_up_of_its_parent(monkeypatch):
    asked, answered, parent = threading.Event(), threading.Event(), os.getpid()
    look_up = socket.getaddrinfo

    def slow(*args, **more):
        if os.getpid() == parent:
            asked.set()
            assert answered.wait(60)
        return look_up(*args, **more)

    def post_once(pipe):
        with HttpClient(url) as client:
            pipe.send(client.post(b"{}", {}, 20.0).status)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Answering(lambda body: reply("[]")) as server, ThreadPoolExecutor() as pool:
        url = f"http://127.0.0.1:{server.port}/"
        with HttpClient(url) as client:
            waiting = pool.submit(client.post, b"{}", {}, 60.0)
            assert asked.wait(30)
            ours, theirs = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=post_once, args=(theirs,))
            with http_client._lock:  # as the thread of a look-up does at its end
                child.start()
            try:
                assert ours.poll(30)
                assert ours.recv() == 200
                child.join(30)
            finally:
                answered.set()
                child.kill()
                ours.close()
                theirs.close()
            assert waiting.result(30).status == 200


@pytest.fixture
def no_proxies(monkeypatch):
    """An environment that names no proxy, to which tests add theirs."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_a_proxy_is_given_the_whole_url(variable, no_proxies):
    with Answering(lambda body: reply("[]")) as proxy:
        no_proxies.setenv(variable, f"me:secret@127.0.0.1:{proxy.port}")
        with HttpClient("http://llm.example:81/v1?a=b", use_proxies=True) as client:
            for _ in range(2):
                assert client.post(b"{}", {}, 60.0).body == b"[]"
        line, heads, body = proxy.requests[0]
        assert line == "POST http://llm.example:81/v1?a=b HTTP/1.1"
        assert heads["host"].strip() == "llm.example:81"
        assert heads["proxy-authorization"].strip() == "Basic bWU6c2VjcmV0"
        assert body == b"{}"
        assert proxy.n_connections == 1
        # Those whom it is not for, and those who did not ask for it.
        no_proxies.setenv("no_proxy", "example")
        for client in (
            HttpClient("http://llm.example:81/", use_proxies=True),
            HttpClient("http://llm.invalid/"),
        ):
            with client, pytest.raises(HttpError, match="cannot be reached: "):
                client.post(b"{}", {}, 60.0)
        assert proxy.n_connections == 1


def test_a_proxy_is_asked_for_a_tunnel_to_a_server_that_encrypts(no_proxies):
    with Answering(lambda body: reply("", status="407 Who")) as proxy:
        no_proxies.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
        with (
            HttpClient("https://llm.example/v1", use_proxies=True) as client,
            pytest.raises(HttpError, match="its proxy answered with status 407"),
        ):
            client.post(b"{}", {}, 60.0)
        line, heads, _ = proxy.requests[0]
    assert line == "CONNECT llm.example:443 HTTP/1.1"
    assert heads["host"].strip() == "llm.example:443"
    assert heads["proxy-authorization"].strip() == "Basic bWU6c2VjcmV0"


@pytest.mark.parametrize("url", ["socks5://me:secret@127.0.0.1:1", "https://h:1", "http://"])
def test_a_proxy_of_another_kind_is_refused_without_its_secret(url, no_proxies):
    no_proxies.setenv("all_proxy", url)
    with pytest.raises(
        ValueError, match=r"proxy of llm\.example: expected http://host:port"
    ) as raised:
        HttpClient("http://llm.example/", use_proxies=True)
    assert "secret" not in str(raised.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The file of a key and a certificate for localhost, which signs itself."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run(
            [*command, "-keyout", str(file), "-out", str(file.with_suffix(".crt"))],
            check=True,
            capture_output=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no certificate can be made here: {error}")
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return str(file)


def answer_encrypted(server, certificate, tunnels):
    """Answer one request over TLS, after a CONNECT if the client takes this for a proxy."""
    connection, _ = server.accept()
    with connection:
        if tunnels is not None:
            tunnels.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(65536)
            encrypted.sendall(HEADS["kept"] + BODY)


@pytest.mark.parametrize("by_proxy", [False, True])
def test_a_server_is_verified_with_and_without_a_proxy(by_proxy, certificate, no_proxies):
    tunnels = [] if by_proxy else None
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        port = server.getsockname()[1]
        url = f"https://localhost:{port}/v1"
        if by_proxy:
            no_proxies.setenv("https_proxy", f"http://127.0.0.1:{port}")
        for trusted in (False, True):
            if trusted:
                no_proxies.setenv("SSL_CERT_FILE", certificate)
            answering = pool.submit(answer_encrypted, server, certificate, tunnels)
            with HttpClient(url, use_proxies=by_proxy) as client:
                if trusted:
                    assert client.post(b"{}", {}, 60.0).body == BODY
                else:
                    with pytest.raises(HttpError, match="CERTIFICATE_VERIFY_FAILED"):
                        client.post(b"{}", {}, 60.0)
            answering.result(30)
    if by_proxy:
        assert tunnels[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())


def test_a_handshake_that_never_ends_is_cancelled_or_late():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        url = f"https://localhost:{server.getsockname()[1]}/"
        with HttpClient(url) as client, pytest.raises(TimeoutError, match=r"within 0\.2 s"):
            client.post(b"{}", {}, 0.2)
        server.accept()[0].close()
        client = HttpClient(url)
        waiting = pool.submit(client.post, b"{}", {}, 60.0)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1)  # it has begun
            client.cancel()
            with pytest.raises(HttpError):
                waiting.result(30)


def test_cancelling_while_the_socket_becomes_one_of_tls_is_not_lost(monkeypatch):
    wrap = ssl.SSLContext.wrap_socket

    def wrap_and_cancel(context, plain, **how):
        made = wrap(context, plain, **how)
        # As another thread does that still finds the plain socket, which no longer has a descriptor.
        client.cancel()
        return made

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_and_cancel)
    # It accepts connections and says nothing, so only the cancellation ends the request in time.
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = HttpClient(f"https://127.0.0.1:{server.getsockname()[1]}/")
        with pytest.raises(HttpError, match="cancelled"):
            client.post(b"{}", {}, 20.0)
