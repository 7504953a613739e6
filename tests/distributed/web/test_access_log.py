from __future__ import annotations

import logging

from raw_http import RawConnection, request

TOKEN = "a-token-of-24-characters"


def test_each_request_is_a_line_without_secrets(serve, client, caplog):
    server = serve(token=TOKEN, access_log=True)
    with caplog.at_level(logging.DEBUG):
        http = client(server, headers={"authorization": f"Bearer {TOKEN}"})
        http.get(f"/?token={TOKEN}&x=1")
        http.post("/none/" + "x" * 1000, json=TOKEN)
        with RawConnection(server) as connection:
            connection.send(request(path=f"http://user:{TOKEN}@localhost/".encode()))
            assert connection.reply()[0] == 401
        server.close()
    # Its client logs what it likes.
    ours = [record for record in caplog.records if not record.name.startswith("http")]
    lines = [
        record.getMessage() for record in ours if record.name == "parllel.distributed.web.access"
    ]
    assert [line.split(" ")[:4] for line in lines] == [
        ["127.0.0.1", "GET", "/", "200"],
        ["127.0.0.1", "POST", "/none/" + "x" * 194, "404"],
        ["127.0.0.1", "POST", "-", "401"],
    ]
    assert all(line.endswith(" ms") for line in lines)
    assert not [record for record in ours if TOKEN in record.getMessage()]


def test_it_is_off_by_default(serve, client, caplog):
    with caplog.at_level(logging.DEBUG):
        server = serve()
        client(server).get("/")
        server.close()
    assert not [record for record in caplog.records if "access" in record.name]
