from __future__ import annotations

import pytest

from parllel.distributed.messaging.kafka.client_settings import ClientSettings


def test_addresses_of_all_forms_are_read():
    settings = ClientSettings("a.b:9092, SSL://c:1,[::1]:65535")
    assert settings.addresses() == [("a.b", 9092), ("c", 1), ("::1", 65535)]


@pytest.mark.parametrize("bootstrap", ["", "host", "host:", "host:0", "host:65536", "a:1,,b:2"])
def test_what_is_no_address_is_refused(bootstrap):
    with pytest.raises(ValueError, match=r'expected "host:port", several separated by commas'):
        ClientSettings(bootstrap)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("bootstrap", 9092, TypeError),
        ("timeout_s", 0, ValueError),
        ("timeout_s", float("nan"), ValueError),
        ("timeout_s", "1", TypeError),
        ("max_bytes", 10, ValueError),
        ("max_bytes", 1e6, TypeError),
    ],
)
def test_what_is_out_of_range_is_refused(name, value, error):
    with pytest.raises(error, match=rf"{name}: expected"):
        ClientSettings(**{"bootstrap": "a:1", name: value})


def test_settings_that_delivery_rests_on_are_not_taken():
    with pytest.raises(ValueError, match=r"'acks' is set by parllel.distributed.messaging"):
        ClientSettings("a:1", config={"acks": "1"})


def test_passwords_are_in_no_repr():
    settings = ClientSettings("a:1", config={"sasl.password": "very secret"})
    assert settings.for_producer()["sasl.password"] == "very secret"
    assert "secret" not in repr(settings)


def test_a_user_may_choose_how_long_fetches_wait():
    settings = ClientSettings("a:1", config={"fetch.wait.max.ms": 500})
    assert settings.for_consumer()["fetch.wait.max.ms"] == 500
