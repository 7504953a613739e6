"""Experiments watched from the page, and their results on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from chromium import expect
from dashboard_server import CARTPOLE, DashboardServer
from shown_board import ShownBoard

from parllel.distributed.operators import Experiment, OperatorConfig, load_experiment
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer
from parllel.testing import Service

WORKER = Path(__file__).parents[1] / "frail_worker.py"
SCRIPT = f"""
from parllel.distributed.operators import Experiment, OperatorConfig

experiment = Experiment(
    "pair",
    [OperatorConfig("baseline", name, "{CARTPOLE}", policy=name) for name in ("random", "noop")],
    seeds=range(6),
)
"""

FRAIL = f"""
import sys
from parllel.distributed.operators import Experiment, OperatorConfig

def operator(name, *words):
    return OperatorConfig("program", name, "five", worker=[sys.executable, {str(WORKER)!r}, *words])

experiment = Experiment(
    "frail", [operator("good"), operator("dies", "die=2", "error=5")], seeds=range(8)
)
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The folder of a server that has a script, and the server."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "pair.py").write_text(SCRIPT)
    (folder / "frail.py").write_text(FRAIL)
    with (
        Service("watched") as service,
        DashboardServer(folder / "runs", folder / "pair.py", folder / "frail.py") as server,
    ):
        service.adopt(server.process.pid)
        yield folder, server


@pytest.fixture
def shown(watched, pages):
    return ShownBoard(pages.open(watched[1].url))


def test_an_experiment_is_watched_held_stepped_and_let_go(shown):
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
    expect(row).to_contain_text("clear")
    expect(detail.locator(".sentences li")).to_have_text(group["sentences"])
    expect(detail.locator(".charts svg.chart")).to_have_count(2)
    shutil.rmtree(folder / "runs" / "earlier")


def test_failed_episodes_are_named_while_it_is_played_and_in_its_results(shown, watched):
    page = shown.page
    page.click("#scripts [data-script$='frail.py']")
    shown.until(lambda: page.locator("#experiment").get_attribute("data-state") == "running")
    page.select_option("#speed", "max")
    page.click("#play")
    expect(page.locator("#experiment")).to_have_attribute("data-state", "ended")
    expect(page.locator("#experiment")).to_contain_text("16 of 16 episodes, 2 failed")
    page.click("#experiment-results")
    detail = page.locator("#results-detail[data-run='frail']")
    expect(detail.locator(".sentences li")).to_have_text(
        [
            "dies: 2 of 8 episodes failed and are not in its means",
            "no clear difference between dies and good: 0 in each of 6 pairs; "
            "2 pairs are left out, as an episode failed",
        ]
    )
    row = detail.locator("table.means tr[data-operator='dies'] td")
    expect(row.nth(0)).to_have_text("6 of 8")
    expect(row.nth(1)).to_have_text("2")
    row = detail.locator("tr[data-difference='dies - good'] td")
    expect(row).to_have_text(["6", "2", "0", "0", "not clear"])
    expect(detail.locator("svg.chart .name").nth(1)).to_have_text("dies (2 failed)")
    page.click("#tab-board")
    page.click("#unwatch")


def test_results_say_that_a_model_was_not_understood(shown, watched):
    folder, _ = watched
    with ScriptedServer([Rule("hm", usage=(3, 1))]) as server:
        settings = {"model": "any", "base_url": server.base_url, "attempts": 0}
        model = OperatorConfig("llm", "model", CARTPOLE, settings=settings, max_steps=4)
        played = Experiment("vague", [model], seeds=[1]).run(folder / "runs" / "models").folder
    shown.page.click("#tab-results")
    shown.page.click("#experiments-list [data-run='models/vague']")
    detail = shown.page.locator("#results-detail[data-run='models/vague']")
    table = detail.locator("table.means")
    column = table.locator("thead th").all_inner_texts().index("Understood")
    expect(table.locator("tr[data-operator=model]").locator("th, td").nth(column)).to_have_text(
        "0 %"
    )
    said = "model: 0 of 4 decisions were understood, less than 50 %"
    expect(detail.locator(".sentences li")).to_contain_text([said])
    shutil.rmtree(played.parent)
