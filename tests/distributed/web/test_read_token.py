from __future__ import annotations

import os
import re

import pytest

from parllel.distributed.web import ServerSettings, read_token

TOKEN = "a-token-of-24-characters"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"

    def write(text, mode=0o600):
        path.touch(0o600)
        path.chmod(0o600)
        path.write_bytes(text.encode())
        path.chmod(mode)
        return path

    return write


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440])
def test_the_first_line_is_the_token(token_file, mode):
    assert read_token(token_file(f"  {TOKEN}\r\nmore", mode)) == TOKEN


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620])
def test_a_file_that_others_can_read_or_change_is_refused(token_file, mode):
    path = token_file(TOKEN, mode)
    expected = (
        rf"token: other users can read or change this token \(mode {mode:04o}\)\. "
        rf"Run: chmod go-rwx {re.escape(str(path))}$"
    )
    with pytest.raises(ValueError, match=expected):
        read_token(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "",
            "expected a token of 16 to 1,024 characters, got 0. Create one with: python -c 'import secrets",
        ),
        ("short", "expected a token of 16 to 1,024 characters, got 5"),
        ("x" * 5000, "expected a token of 16 to 1,024 characters, got 1,026"),
        (f"two words {TOKEN}", "expected a token of visible ASCII characters"),
        (f"é{TOKEN}", "expected a token of visible ASCII characters"),
    ],
)
def test_what_is_no_token_is_refused_without_showing_it(token_file, text, match):
    with pytest.raises(ValueError, match=match) as caught:
        read_token(token_file(text))
    assert not text or text not in str(caught.value)


def test_a_folder_a_device_or_nothing_is_no_token_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_token(tmp_path)
    with pytest.raises(ValueError, match="/dev/zero: expected a file with a token in its first"):
        read_token("/dev/zero")
    with pytest.raises(FileNotFoundError, match="none"):
        read_token(tmp_path / "none")


def test_a_pipe_is_read():
    reading, writing = os.pipe()
    try:
        os.write(writing, f"{TOKEN}\n".encode())
        assert read_token(f"/dev/fd/{reading}") == TOKEN
    finally:
        os.close(reading)
        os.close(writing)


def test_the_variable_is_not_left_for_children(monkeypatch, token_file):
    assert read_token() is None
    monkeypatch.setenv("PARLLEL_TOKEN", TOKEN)
    assert read_token(token_file("another-token-than-that")) == "another-token-than-that"
    assert read_token() == TOKEN
    assert "PARLLEL_TOKEN" not in os.environ
    monkeypatch.setenv("PARLLEL_TOKEN", "short")
    with pytest.raises(ValueError, match=r"^\$PARLLEL_TOKEN: expected a token of 16 to"):
        read_token()


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"token": "short"}, ValueError, "^token: expected a token of 16 to"),
        ({"token": TOKEN.encode()}, TypeError, "^token: expected a token as a str, got bytes"),
        ({"host": ""}, TypeError, "^host: expected an address or a name, got ''"),
        ({"port": 65536}, ValueError, "^port: expected an int from 0 to 65535, got 65536"),
        ({"port": "80"}, ValueError, "^port: expected an int from 0 to 65535, got '80'"),
        (
            {"allowed_hosts": "a"},
            TypeError,
            "^allowed_hosts: expected a sequence of names, got 'a'",
        ),
        ({"body_s": 0}, ValueError, "^body_s: expected seconds above 0, got 0"),
        ({"end_s": float("inf")}, ValueError, "^end_s: expected seconds above 0, got inf"),
        ({"handler_threads": 0}, ValueError, "^handler_threads: expected an int of at least 1"),
        ({"max_body_bytes": True}, ValueError, "^max_body_bytes: expected an int of at least 1"),
        ({"requests_per_s": 0}, ValueError, "^requests_per_s: expected a number above 0 or None"),
    ],
)
def test_a_wrong_setting_is_named(settings, error, match):
    with pytest.raises(error, match=match):
        ServerSettings(**settings)
