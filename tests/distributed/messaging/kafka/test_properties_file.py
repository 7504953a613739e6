from __future__ import annotations

import pytest

from parllel.distributed.messaging.kafka.tap_command import read_properties


@pytest.fixture
def write(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "client.properties"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def test_lines_are_read(write):
    path = write("# a comment\n\nsasl.username = me\nsasl.password=a=b#c\n")
    assert read_properties(path) == {"sasl.username": "me", "sasl.password": "a=b#c"}


@pytest.mark.parametrize("mode", [0o604, 0o620])
def test_files_that_others_can_read_or_change_are_refused(write, mode):
    with pytest.raises(ValueError, match=r"other users can read or change .* chmod go-rwx"):
        read_properties(write("sasl.password=x", mode))


@pytest.mark.parametrize("line", ["secret", "=secret"])
def test_a_line_that_is_no_setting_is_named_by_its_number_alone(write, line):
    with pytest.raises(ValueError, match=r"line 2: expected NAME=VALUE$") as caught:
        read_properties(write(f"a=1\n{line}\n"))
    assert "secret" not in str(caught.value)


def test_a_setting_that_is_there_twice_is_refused(write):
    with pytest.raises(ValueError, match="line 2: a is set twice"):
        read_properties(write("a=1\na=2\n"))
