"""The ways that docs/architecture.md shows are those that calls take: each is traced while the code runs."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest
from call_trace import PACKAGE, functions_of, module_of, passed
from traced_ways import WAYS

# Of an experiment's results, which are drawn.
pytestmark = pytest.mark.usefixtures("open_fonts")
PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
WAYS_SHOWN = re.split(r"^### ", PAGE.partition("\n## Two ways")[0], flags=re.M)[1:]
SECTIONS = {section.partition("\n")[0]: section for section in WAYS_SHOWN}


def stops_of(way):
    """Return the place and the function of each line of a table."""
    return re.findall(r"^\| (\w+) \| `([\w.]+)` \|", SECTIONS[way], re.M)


def between(calls, stops, since):
    """Return where the calls from the first to the last of some stops begin and end, after `since`."""
    at = since - 1
    for i, stop in enumerate(stops):
        assert stop in calls, f"{stop}: was not called"
        try:
            at = calls.index(stop, at + 1)
        except ValueError:
            before = stops[i - 1] if i else "what others have to do before"
            pytest.fail(f"{stop}: was called, but not after {before}")
    # Backwards, as a function may have been called before for something else.
    first = at + 1
    for stop in reversed(stops):
        first = max(j for j in range(since, first) if calls[j] == stop)
    return first, at + 1


def walked(way, calls):
    """Return the calls of a way, those of one thread or process after those of the one before it."""
    ends, found = {}, []
    for place, stops in groupby(stops_of(way), key=lambda stop: stop[0]):
        assert place in calls, f"{place}: expected one of {sorted(calls)}"
        functions = [function for _, function in stops]
        first, ends[place] = between(calls[place], functions, ends.get(place, 0))
        found += calls[place][first : ends[place]]
    return found


@pytest.fixture(scope="module")
def traces():
    """Traces by the function that made them, as two ways may be seen in one."""
    return {}


def test_the_page_shows_the_ways_that_are_traced():
    assert list(SECTIONS) == list(WAYS)
    assert all(len(stops_of(way)) >= 5 for way in WAYS)


def test_all_functions_that_are_named_exist():
    named = {name for name in re.findall(r"`([\w.]+)`", PAGE) if name.count(".") >= 2}
    assert len(named) > 50
    for name in named:
        module = module_of(name)
        assert module, f"{name}: there is no such module"
        path = PACKAGE + module.replace(".", "/") + ".py"
        function = name[len(module) + 1 :]
        assert not function or function in functions_of(path), f"{name}: there is no such function"


@pytest.mark.parametrize("way", WAYS)
def test_calls_take_the_way(way, traces, tmp_path):
    trace = WAYS[way]
    if trace not in traces:
        traces[trace] = trace(tmp_path)
    files, returns = passed(walked(way, traces[trace]))
    shown = re.search(r"^(\d+) stops, (\d+) files, (\d+) returns\.$", SECTIONS[way], re.M)
    assert shown, "expected a line such as '8 stops, 12 files, 3 returns.'"
    assert int(shown[1]) == len(stops_of(way))
    # At most, as what is called may differ a little between versions of Python and of libraries.
    assert files <= int(shown[2]), f"{files} files, which is more than the page says"
    assert returns <= int(shown[3]), f"{returns} returns, which is more than the page says"
