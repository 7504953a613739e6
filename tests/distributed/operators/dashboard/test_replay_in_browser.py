"""Recorded episodes replayed on the page: what it shows is what their telemetry holds."""

from __future__ import annotations

import json
from urllib.parse import quote

import numpy as np
import pytest
import video_reader
from chromium import expect
from dashboard_server import RPS, SCENES, DashboardServer
from recorded import episodes, lines, play, write_experiment
from shown_board import ShownBoard

from parllel.distributed.operators import Experiment, MultiAgentConfig, OperatorConfig
from parllel.distributed.operators.experiments.experiment_folder import ExperimentFolder
from parllel.distributed.operators.experiments.telemetry import Telemetry
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer
from parllel.testing import Service

ENV = f"{SCENES}:squares"
N_LONG = 1234
THOUGHT = "<b>left</b> or right?"
THINKS = Rule(None, message={"reasoning_content": THOUGHT}, finish_reason="length")


SHOWS = """begin => {
    const video = document.querySelector("#replay-film video");
    return !video.seeking && video.readyState >= 2 && Math.abs(video.currentTime - begin - 1 / 60) < 0.01;
}"""
PIXELS = """video => {
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    const context = canvas.getContext("2d");
    context.drawImage(video, 0, 0);
    return [...context.getImageData(0, 0, canvas.width, canvas.height).data];
}"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of runs of a server, and the server."""
    runs = tmp_path_factory.mktemp("recorded") / "runs"
    operators = [
        OperatorConfig("baseline", name, ENV, policy=policy, max_steps=most)
        for name, policy, most in (("random", "random", 12), ("noop", "noop", 5))
    ]
    Experiment("played", operators, seeds=[41, 42]).run(runs)
    players = {
        seat: OperatorConfig("baseline", name, policy=policy)
        for seat, name, policy in (("red", "one", "random"), ("blue", "two", "noop"))
    }
    game = MultiAgentConfig("rps", RPS, players)
    Experiment("together", [game], seeds=[3]).run(runs)

    short = OperatorConfig("baseline", "short", ENV, policy="noop", max_steps=3)
    Experiment("filmed", [operators[0], short], seeds=[41, 42], video=1).run(runs)
    rules = [Rule("hm", times=1), Rule("Action: right", times=1, usage=(9, 2)), THINKS]
    with ScriptedServer(rules) as model:
        settings = {"model": "any", "base_url": model.base_url, "attempts": 1}
        llm = OperatorConfig("llm", "model", ENV, settings=settings, max_steps=3)
        Experiment("asked", [llm], seeds=[1]).run(runs)
    with ScriptedServer([Rule("hm", times=1), Rule("no", status=400)]) as model:
        settings = {"model": "any", "base_url": model.base_url, "attempts": 1}
        llm = OperatorConfig("llm", "model", ENV, settings=settings, max_steps=3)
        Experiment("refused", [llm], seeds=[1]).run(runs)

    def failed(telemetry):
        play(telemetry, "lost", 0, 5, [], status="failed")

    def up(telemetry):
        for number, total in enumerate((1.0, 4.0, 9.0, 16.0)):
            status = "failed" if number == 2 else "ended"
            play(telemetry, "up", number, number, [total], status=status)

    down = episodes("down", {number: [-3.0 * number] for number in range(4)})
    write_experiment(runs, {"up": up, "down": down}, "gaps")
    told = {"long": episodes("long", {5: [1.0, -1.0] * (N_LONG // 2)}), "lost": failed}
    write_experiment(runs, told)
    with Service("recorded") as service, DashboardServer(runs) as server:
        service.adopt(server.process.pid)
        yield runs, server


@pytest.fixture
def replay(recorded, pages):
    """A function that opens an episode on the page, by the address."""
    shown = ShownBoard(pages.open(recorded[1].url))

    def open_it(*parts):
        address = "/".join(quote(str(part), safe="") for part in parts)
        shown.page.evaluate("hash => { location.hash = hash }", f"replay={address}")
        return shown.page

    return open_it


def track(page, operator):
    return page.locator(f"#replay-tracks [data-operator='{operator}']")


def field(page, operator, name):
    return track(page, operator).locator(f"[data-field='{name}']").first


def expect_step(page, operator, record):
    """Wait until a track shows a step, and check that it shows all of its record."""
    expect(track(page, operator)).to_have_attribute("data-step", str(record["step"]))
    expect(field(page, operator, "step")).to_have_text(str(record["step"]))
    expect(field(page, operator, "reward")).to_have_text(f"{record['reward']:g}")
    expect(field(page, operator, "episode-reward")).to_have_text(f"{record['episode_reward']:g}")
    expect(field(page, operator, "action")).to_have_text(json.dumps(record["action"]))


def test_an_episode_is_opened_from_the_results_and_stepped_through(recorded, replay, pages):
    runs, server = recorded
    page = pages.open(server.url)
    page.click("#tab-results")
    page.click("#experiments-list [data-run='played']")
    noted = {
        name: lines(runs / "played", f"played_{name}_episodes.jsonl") for name in ("random", "noop")
    }
    rows = page.locator("#results-detail table.episodes tbody tr")
    expect(rows).to_have_count(2)
    for number in range(2):
        returns = [f"{noted[name][number]['total_reward']:g}" for name in ("random", "noop")]
        seed = str(noted["noop"][number]["seed"])
        expect(rows.nth(number).locator("th, td")).to_have_text([str(number), seed, *returns])
    rows.nth(1).locator("a").first.click()
    steps = {
        name: [
            one
            for one in lines(runs / "played", f"played_{name}_steps.jsonl")
            if one["episode"] == 1
        ]
        for name in ("random", "noop")
    }
    n = len(steps["random"])
    expect(page.locator("#replay-at")).to_have_text(f"Step 1 of {n}")
    # The scrubber by keys of its own, and the keys of the page.
    page.locator("#replay-step").focus()
    for i in range(1, n):
        page.keyboard.press("ArrowRight")
        expect_step(page, "random", steps["random"][i])
        expect_step(page, "noop", steps["noop"][min(i, len(steps["noop"]) - 1)])
    expect(field(page, "noop", "over")).to_have_text("Over after 5 steps")
    page.keyboard.press("Home")
    expect_step(page, "random", steps["random"][0])
    expect(field(page, "noop", "over")).to_be_hidden()
    page.locator("#replay-step").evaluate("node => node.blur()")
    page.keyboard.press("End")
    expect_step(page, "random", steps["random"][-1])
    page.keyboard.press("ArrowLeft")
    expect_step(page, "random", steps["random"][-2])
    # A reload stays where it was.
    expect(page).to_have_url(f"{page.url.split('#')[0]}#replay=played/random/1/{n - 1}")
    page.reload()
    expect_step(page, "random", steps["random"][-2])
    page.click("#replay-back")
    expect(rows).to_have_count(2)


def test_who_leaves_before_the_address_is_settled_is_not_brought_back(replay):
    page = replay("played", "random", 1)
    expect(page.locator("#replay-at")).to_contain_text("Step 1 of")
    # The page hears of a followed link after this function has ended: the timer comes before it.
    page.evaluate("""() => {
        const { setTimeout } = window;
        let settle = null;
        window.setTimeout = (callback) => { settle = callback; };
        document.getElementById("replay-step").dispatchEvent(new Event("input"));
        window.setTimeout = setTimeout;
        document.getElementById("replay-back").click();
        settle();
    }""")
    expect(page.locator("#results-detail table.episodes tbody tr")).to_have_count(2)


def drawn(line):
    """Return the points of a line of a chart: numbers from left to right, and pixels from the top."""
    points = line.get_attribute("points").split()
    # Each line begins with its first point twice, so that a single one is seen.
    return np.array([[float(one) for one in point.split(",")] for point in points[1:]])


def test_results_have_the_curves_of_all_episodes_and_gaps_where_one_failed(recorded, pages):
    runs, server = recorded
    page = pages.open(server.url)
    page.evaluate("location.hash = 'results=gaps'")
    figure = page.locator("#results-detail figure.returns")
    expect(figure.locator(".legend li")).to_have_text(["up", "down"])
    expect(figure.locator("polyline")).to_have_count(3)
    found = [drawn(line) for line in figure.locator("polyline").all()]
    records = {name: lines(runs / "gaps", f"gaps_{name}_episodes.jsonl") for name in ("up", "down")}
    assert [one["status"] for one in records["up"]] == ["ended", "ended", "failed", "ended"]
    values = [
        [(one["episode"], one["total_reward"]) for one in part]
        for part in (records["up"][:2], records["up"][3:], records["down"])
    ]
    for shown, expected in zip(found, values, strict=True):
        assert shown[:, 0] == pytest.approx([number / 3 for number, _ in expected])
    tops = np.concatenate([shown[:, 1] for shown in found])
    returns = np.array([total for part in values for _, total in part])
    # Higher on the page is less, by one scale for all lines.
    scale, level = np.polyfit(returns, tops, 1)
    assert scale < 0
    assert tops == pytest.approx(scale * returns + level)
    # Of a single episode there is no curve.
    page.evaluate("location.hash = 'results=together'")
    expect(page.locator("#results-detail[data-run=together] table.episodes")).to_be_visible()
    expect(figure).to_have_count(0)


def test_links_lead_to_the_episodes_before_and_after(replay):
    page = replay("played", "noop", 0)
    expect(field(page, "noop", "episode")).to_have_text("Episode 0, seed 41")
    expect(page.locator("#replay-previous")).to_be_hidden()
    page.click("#replay-next")
    expect(field(page, "noop", "episode")).to_have_text("Episode 1, seed 42")
    expect(page.locator("#replay-next")).to_be_hidden()
    page.click("#replay-previous")
    expect(field(page, "noop", "episode")).to_have_text("Episode 0, seed 41")
    # The browser's own way back.
    page.go_back()
    expect(field(page, "noop", "episode")).to_have_text("Episode 1, seed 42")


def test_play_goes_to_the_end_and_begins_again(recorded, replay):
    page = replay("played", "noop", 0)
    expect(page.locator("#replay-at")).to_have_text("Step 1 of 12")
    page.select_option("#replay-speed", "30")
    page.click("#replay-play")
    expect(page.locator("#replay-play")).to_have_text("Pause")
    expect(page.locator("#replay-at")).to_have_text("Step 12 of 12")
    expect(page.locator("#replay-play")).to_have_text("Play")
    page.select_option("#replay-speed", "1")
    page.locator("#replay-play").evaluate("node => node.blur()")
    page.keyboard.press(" ")
    expect(page.locator("#replay-at")).to_have_text("Step 1 of 12")
    expect(page.locator("#replay-at")).to_have_text("Step 2 of 12")
    page.keyboard.press(" ")
    expect(page.locator("#replay-play")).to_have_text("Play")


def test_the_curve_is_the_return_so_far_and_moves_the_scrubber(recorded, replay):
    runs, _ = recorded
    page = replay("played", "random", 0)
    steps = lines(runs / "played", "played_random_steps.jsonl")
    sums = [one["episode_reward"] for one in steps if one["episode"] == 0]
    expect(page.locator("#replay-curve .legend li")).to_have_text(["random", "noop"])
    xs, ys = drawn(page.locator("#replay-curve polyline").first).T
    assert xs == pytest.approx([i / (len(sums) - 1) for i in range(len(sums))])
    # Higher on the page is less, by one scale.
    scale = (ys[0] - ys[-1]) / (sums[-1] - sums[0])
    assert ys == pytest.approx([ys[0] - scale * (one - sums[0]) for one in sums])
    chart = page.locator("#replay-curve svg.curve")
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] / 2, "y": 40})
    expect(page.locator("#replay-step")).to_have_value(str(round(1 + (len(sums) - 1) / 2 + 0.01)))
    mark = page.locator("#replay-curve .mark line").get_attribute("x1")
    step = int(page.locator("#replay-step").input_value())
    assert float(mark.rstrip("%")) == pytest.approx(100 * (step - 1) / (len(sums) - 1))


def test_the_film_of_an_episode_follows_the_slider(recorded, replay):
    runs, _ = recorded
    (path,) = (runs / "filmed" / "videos").iterdir()
    frames = video_reader.read(path).astype(float)
    page = replay("filmed", "short", 0)
    video = page.locator("#replay-film video")
    expect(video).to_be_visible()
    for step in (1, 7, 12, 2):
        page.locator("#replay-step").fill(str(step))
        page.wait_for_function(SHOWS, arg=step / 30)
        pixels = np.array(video.evaluate(PIXELS), float).reshape(*frames.shape[1:3], 4)[..., :3]
        # Colours differ a little between decoders.
        assert np.abs(frames - pixels).mean((1, 2, 3)).argmin() == step
    # The second episode was not filmed.
    page = replay("filmed", "short", 1)
    expect(track(page, "short")).to_have_attribute("data-step", "1")
    expect(video).to_be_hidden()


def test_a_long_episode_is_fetched_where_it_is_looked_at(recorded, replay):
    runs, _ = recorded
    steps = lines(runs / "told", "told_long_steps.jsonl")
    page = replay("told", "long", 0)
    asked = []
    page.on("request", lambda request: "api/steps" in request.url and asked.append(request.url))
    expect_step(page, "long", steps[0])
    page.locator("#replay-step").focus()
    page.keyboard.press("End")
    expect_step(page, "long", steps[-1])
    page.locator("#replay-step").fill("617")
    expect_step(page, "long", steps[616])
    for i in range(615, 590, -1):
        page.keyboard.press("ArrowLeft")
        expect_step(page, "long", steps[i])
    assert 2 <= len(asked) <= 4
    # That failed before its first step, with the same seed.
    expect(field(page, "lost", "over")).to_have_text("No step was recorded")
    expect(field(page, "lost", "outcome")).to_contain_text("Failed")


def test_a_game_shows_the_moves_of_its_players(recorded, replay):
    runs, _ = recorded
    page = replay("together", "rps", 0)
    steps = lines(runs / "together", "together_rps_steps.jsonl")
    last = [one for one in steps if one["step"] == steps[-1]["step"]]
    assert [one["player_id"] for one in last] == ["red", "blue"]
    expect(track(page, "rps")).to_have_attribute("data-step", "1")
    page.locator("#replay-step").focus()
    page.keyboard.press("End")
    moves = track(page, "rps").locator(".move")
    expect(track(page, "rps")).to_have_attribute("data-step", str(last[0]["step"]))
    expect(moves).to_have_count(2)
    for i, record in enumerate(last):
        shown = moves.nth(i)
        who = f"{record['player_id']} · {record['operator_id']}"
        expect(shown.locator("[data-field=player]")).to_have_text(who)
        expect(shown.locator("[data-field=action]")).to_have_text(json.dumps(record["action"]))
        expect(shown.locator("[data-field=episode-reward]")).to_have_text(
            f"{record['episode_reward']:g}"
        )
    expect(page.locator("#replay-curve .legend li")).to_have_text(["red", "blue"])


def test_a_model_is_shown_with_its_prompts_answers_and_retries(recorded, replay):
    runs, _ = recorded
    first, second, _ = lines(runs / "asked", "asked_model_steps.jsonl")
    page = replay("asked", "model", 0)
    items = track(page, "model").locator(".move .chat > li")
    expect(items).to_have_count(5)
    roles = [one.get_attribute("data-role") for one in items.all()]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    system, question, correction = (one["content"] for one in first["prompts"])
    texts = [one.locator("pre").first.text_content() for one in items.all()]
    assert texts == [system, question, "hm", correction, "Action: right"]
    assert "Actions: stay, left, right" in system
    expect(items.last).to_contain_text("Understood: 2 Played: 2")
    # That was not understood, and cut.
    page.keyboard.press("ArrowRight")
    expect(track(page, "model")).to_have_attribute("data-step", "2")
    assert second["understood"] is False
    expect(items.last).to_contain_text("not understood")
    expect(items.last).to_contain_text(f"Played instead: {second['executed']}")
    expect(items.last).to_contain_text("cut at the limit of tokens")
    expect(items.last).to_contain_text("(no text)")
    items.last.locator("summary").click()
    # What models say never becomes HTML.
    assert THOUGHT in items.last.locator("details pre").inner_text()


def test_the_decision_with_which_an_episode_failed_is_shown(recorded, replay):
    runs, _ = recorded
    (noted,) = lines(runs / "refused", "refused_model_episodes.jsonl")
    page = replay("refused", "model", 0)
    expect(field(page, "model", "failure")).to_have_text(noted["failure"])
    items = track(page, "model").locator(".unplayed .chat > li")
    expect(items).to_have_count(4)
    texts = [one.locator("pre").first.text_content() for one in items.all()]
    system, question, correction = (one["content"] for one in noted["unplayed"]["prompts"])
    assert texts == [system, question, "hm", correction]


def test_a_running_episode_grows_on_the_page(recorded, replay):
    runs, _ = recorded
    values = {"name": "live", "operators": [{"operator_id": "a", "env_id": "told-v0"}]}
    with (
        ExperimentFolder(runs, {**values, "episodes": None, "mode": "free"}) as folder,
        Telemetry(folder.telemetry, folder.run_id("a")) as telemetry,
    ):
        play(telemetry, "a", 0, 5, [1.0], is_noted=False, raw="<b>hm</b>", answers=[{"text": "hm"}])
        page = replay("live", "a", 0)
        expect(page.locator("#replay-at")).to_have_text("Step 1 of 1")
        expect(field(page, "a", "episode")).to_have_text("Episode 0, seed 5")
        expect(page.locator("#replay-next")).to_be_hidden()
        labels = {"operator_id": "a", "env_id": "told-v0", "episode": 0, "seed": 5}
        telemetry.step({**labels, "step": 2, "action": 1, "reward": 2.0, "episode_reward": 3.0})
        expect(page.locator("#replay-at")).to_have_text("Step 1 of 2")
        telemetry.episode({**labels, "status": "ended", "total_reward": 3.0, "episode_length": 2})
        play(telemetry, "a", 1, 6, [4.0], is_noted=False)
        expect(field(page, "a", "outcome")).to_have_text("Return 3, 2 steps")
        page.locator("#replay-step").fill("2")
        expect_step(page, "a", lines(runs / "live", "live_a_steps.jsonl")[1])
        page.click("#replay-next")
        expect(field(page, "a", "outcome")).to_have_text("Abandoned, or still being played")
        page.click("#replay-back")
        cells = page.locator("#results-detail table.episodes tbody td a")
        expect(cells).to_have_text(["3", "unfinished"])


def test_old_records_of_a_model_show_its_text(recorded, replay):
    runs, _ = recorded
    old = episodes("old", {5: [1.0, 2.0]}, raw="Action: 1", tokens=12)
    write_experiment(runs, {"old": old}, "old")
    page = replay("old", "old", 0)
    expect(track(page, "old").locator(".chat > li pre")).to_have_text(["Action: 1"])


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("nowhere", "a", 0), "got 'nowhere'"),
        (("told", "../long", 0), "one of long, lost; got '../long'"),
        (("told", "long", 9), "operator 'long' has no recorded episode 9"),
        (("told", "long", "x"), "episode: expected a number of at least 0, got 'x'"),
    ],
)
def test_what_is_not_recorded_is_said(replay, parts, said):
    page = replay(*parts)
    expect(page.locator("#error-text")).to_contain_text(said)
    expect(page.locator("#replay-play")).to_be_disabled()


def test_an_address_that_nobody_could_have_encoded_is_refused(replay, recorded):
    page = replay("told", "long", 0)
    page.evaluate("location.hash = 'replay=%E0%A4%A/long/0'")
    expect(page.locator("#error-text")).to_contain_text("got '%E0%A4%A'")
