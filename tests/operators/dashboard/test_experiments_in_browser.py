"""Experiments watched from the page are those that are played without it; their results on the page."""

from __future__ import annotations

import json
import shutil

import pytest
from chromium import expect
from dashboard_server import CARTPOLE, DashboardServer
from shown_board import ShownBoard

from parllel.operators import load_experiment
from parllel.operators.telemetry import TIMES
from parllel.testing import Service

# Each part of it has a time-out of its own.
pytestmark = pytest.mark.timeout(180)

SCRIPT = f"""
from parllel.operators import Experiment, OperatorConfig

experiment = Experiment(
    "pair",
    [OperatorConfig("baseline", name, "{CARTPOLE}", policy=name) for name in ("random", "noop")],
    seeds=range(4),
)
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The folder of a server that has a script, and the server."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "pair.py").write_text(SCRIPT)
    with (
        Service("watched") as service,
        DashboardServer(folder / "runs", folder / "pair.py") as server,
    ):
        service.adopt(server.process.pid)
        yield folder, server


@pytest.fixture
def shown(watched, pages):
    return ShownBoard(pages.open(watched[1].url))


def telemetry(folder):
    """Return the records of a folder without their times."""
    return {
        file.name: [
            {name: value for name, value in json.loads(line).items() if name not in TIMES}
            for line in file.read_text().splitlines()
        ]
        for file in sorted((folder / "telemetry").iterdir())
    }


def test_an_experiment_watched_is_the_one_that_is_played_alone(shown, watched, tmp_path):
    folder, _ = watched
    shown.page.click("#scripts [data-script$='pair.py']")
    # Not before it can be played.
    expect(shown.page.locator("#play")).to_be_enabled()
    assert shown.page.locator("#experiment").get_attribute("data-state") == "running"
    expect(shown.page.locator("#phase")).to_have_attribute("data-phase", "stopped")
    for name in ("random", "noop"):
        expect(shown.card(name)).to_be_visible()
    # Held, stepped, let go, held.
    shown.page.click("#step-all")
    for name in ("random", "noop"):
        shown.expect(name, step=1)
    shown.page.select_option("#speed", "10")
    shown.page.click("#play")
    shown.until(lambda: (shown.number("noop", "step") or 0) > 3)
    shown.page.click("#play")
    shown.page.select_option("#speed", "max")
    shown.page.click("#play")
    expect(shown.page.locator("#experiment")).to_have_attribute("data-state", "ended")
    # The same by itself.
    with load_experiment(folder / "pair.py") as experiment:
        alone = experiment.run(tmp_path, script=folder / "pair.py").folder
    assert telemetry(folder / "runs" / "pair") == telemetry(alone)
    shown.page.click("#unwatch")
    expect(shown.page.locator("#experiment")).to_be_hidden()


def test_results_say_which_differences_are_clear(shown, watched, tmp_path):
    folder, _ = watched
    with load_experiment(folder / "pair.py") as experiment:
        played = experiment.run(folder / "runs" / "earlier").folder
    shown.page.click("#tab-results")
    shown.page.click("#experiments-list [data-run='earlier/pair']")
    detail = shown.page.locator("#results-detail[data-run='earlier/pair']")
    (group,) = json.loads((played / "results.json").read_text())["results"]
    for operator in group["operators"]:
        row = detail.locator(f"table.means tr[data-operator='{operator['operator_id']}']")
        expect(row).to_contain_text(f"{operator['total_reward']['mean']:.4g}")
    row = detail.locator("tr[data-difference='noop - random']")
    assert group["differences"][0]["is_clear"]
    expect(row).to_have_attribute("data-clear", "true")
    expect(detail.locator(".sentences li")).to_have_text(group["sentences"])
    expect(detail.locator("svg.chart")).to_have_count(2)
    shutil.rmtree(folder / "runs" / "earlier")
