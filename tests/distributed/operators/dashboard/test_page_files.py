"""What the files of the page must not do, which no browser reports as an error."""

import re
from pathlib import Path

import parllel.distributed.operators

PAGE = Path(parllel.distributed.operators.__file__).parent / "dashboard" / "page"
TEXTS = {path.name: path.read_text() for path in sorted(PAGE.iterdir())}
SCRIPTS = {name: text for name, text in TEXTS.items() if name.endswith(".js")}


def found(pattern, texts):
    return {match.strip('";>') for text in texts.values() for match in re.findall(pattern, text)}


def test_what_agents_say_never_becomes_html():
    assert not found(
        r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|\beval\b",
        SCRIPTS,
    )


def test_nothing_is_asked_of_other_sites():
    # The names of a format alone.
    assert found(r"(?:https?:)?//[\w.-]+\.[a-z]+\S*", TEXTS) == {"http://www.w3.org/2000/svg"}


def test_each_file_is_used_by_another():
    for name in TEXTS.keys() - {"index.html"}:
        assert any(name in text for other, text in TEXTS.items() if other != name), name


def test_each_element_that_a_script_names_is_on_the_page():
    named = found(r'(?:\bat|getElementById|copyOf)\("([\w-]+)"\)', SCRIPTS)

    assert named
    assert named <= found(r'\bid="([\w-]+)"', {"index.html": TEXTS["index.html"]})
