"""Write the pictures of docs/pictures anew: `python tests/distributed/operators/dashboard/take_pictures.py`.

They are those of a real server with real workers, in the browser of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
# As pytest does for the files that tests share.
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "tests" / "support")]

from chromium import Chromium, expect  # noqa: E402
from dashboard_server import CARTPOLE, DashboardServer  # noqa: E402
from shown_board import ShownBoard  # noqa: E402

from parllel.distributed.operators import Experiment, OperatorConfig  # noqa: E402
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
NAMES = (
    "dashboard",
    "dashboard_dark",
    "dashboard_people",
    "dashboard_add",
    "dashboard_results",
    "dashboard_replay",
    "dashboard_phone",
)
DESK = {"width": 1240, "height": 900}
TALL = {"width": 1240, "height": 1150}
PHONE = {"width": 360, "height": 720}
CHESS = "pettingzoo/classic/chess_v6"
ROOM = "minigrid:MiniGrid-FourRooms-v0"
SCRIPT = f"""
from parllel.distributed.operators import Experiment, OperatorConfig

POLICIES = {{"lean": "scenes.py:lean", "random": "random", "noop": "noop"}}
experiment = Experiment(
    "who-balances",
    [OperatorConfig("baseline", name, "{CARTPOLE}", policy=one) for name, one in POLICIES.items()],
    seeds=range(12),
    success=200.0,
)
"""


class Album:
    """Takes pictures of pages, and keeps them small."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, page, name: str) -> None:
        """Write the picture of what a page shows."""
        assert name in NAMES, name
        page.wait_for_timeout(600)  # for what moves to come to rest
        picture = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
        # Colours are few, but for shadows; a palette halves the files.
        few = picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(self._folder / f"{name}.png", optimize=True)
        print(self._folder / f"{name}.png", (self._folder / f"{name}.png").stat().st_size)


def operators(board: ShownBoard) -> None:
    """Fill the board with operators that have played for a while."""
    board.clear()
    board.add("lean", "baseline", CARTPOLE, policy="scenes.py:lean")
    board.add("random", "baseline", CARTPOLE, policy="random")
    board.add("me", "human", ROOM)
    board.reset(7)
    for name in ("lean", "random", "me"):
        board.expect(name, status="ready")
    board.page.select_option("#speed", "10")
    board.page.click("#play")
    board.expect("random", status="ended")
    for key in ("ArrowRight", "ArrowUp", "ArrowUp"):
        board.expect("me", status="waiting")
        board.page.keyboard.press(key)
    board.until(lambda: board.number("lean", "step") >= 40)
    board.page.click("#play")


def games(board: ShownBoard) -> None:
    """Put two games on the board, of which a person plays one."""
    board.clear()
    black = ("player_1", "chess", "black", "random")
    board.add_game("chess", CHESS, [("player_0", "human", "me", None), black])
    four = "pettingzoo/classic/connect_four_v3"
    players = [
        ("player_0", "baseline", "red", "random"),
        ("player_1", "baseline", "yellow", "random"),
    ]
    board.add_game("four", four, players)
    board.reset(3)
    for name in ("chess", "four"):
        board.expect(name, status="ready")
    board.page.select_option("#speed", "2")
    board.page.click("#play")
    board.expect("chess", status="waiting")
    find = board.player("chess", "player_0").locator("input[data-field=filter]")
    find.fill("e2e4") if find.is_visible() else board.page.get_by_role(
        "button", name="e2e4"
    ).click()
    find.press("Enter") if find.is_visible() else None
    board.until(lambda: board.number("four", "step") >= 6)
    board.expect("chess", status="waiting", step=2)


def models_on_a_lake() -> None:
    """Play FrozenLake with two models that answer by rules, below `runs`."""
    hesitant = [
        Rule("I would rather think about it.", times=1, usage=(310, 8)),
        Rule("The ice ends to the right, so I go there.\nAction: right", usage=(340, 14)),
    ]
    brief = [Rule("Action: down", usage=(300, 4))]
    with ScriptedServer(hesitant) as one, ScriptedServer(brief) as other:
        models = [
            OperatorConfig(
                "llm",
                name,
                "FrozenLake-v1",
                settings={"model": name, "base_url": server.base_url},
                env_kwargs={"is_slippery": False},
                max_steps=6,
            )
            for name, server in (("hesitant", one), ("brief", other))
        ]
        Experiment("two-models", models, seeds=[1]).run("runs")


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=PICTURES)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    album = Album(folder)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Where it is shown, a path is to be short.
        stack.callback(os.chdir, os.getcwd())
        os.chdir(home)
        shutil.copy(HERE / "scenes.py", home)
        (home / "who_balances.py").write_text(SCRIPT)
        server = stack.enter_context(DashboardServer("runs", "who_balances.py"))
        chromium = stack.enter_context(Chromium(home / "browser"))
        pages = stack.enter_context(chromium.pages())
        light = pages.open(server.url, viewport=DESK, color_scheme="light")
        dark = pages.open(server.url, viewport=DESK, color_scheme="dark")
        phone = pages.open(server.url, viewport=PHONE, color_scheme="light")
        board = ShownBoard(light)
        operators(board)
        album.take(light, "dashboard")
        album.take(dark, "dashboard_dark")
        phone.locator("[data-card=random]").scroll_into_view_if_needed()
        album.take(phone, "dashboard_phone")
        light.click("#add")
        light.fill("#operator-id", "trained")
        light.select_option("#operator-type", "rl")
        light.fill("#env-id", CARTPOLE)
        light.fill("#policy", "runs/cartpole/ppo-seed0")
        album.take(light, "dashboard_add")
        light.click("#add-cancel")
        light.set_viewport_size(TALL)
        games(board)
        album.take(light, "dashboard_people")
        light.set_viewport_size(DESK)
        board.page.click("#play")
        light.click("#scripts [data-script$='who_balances.py']")
        light.select_option("#speed", "max")
        light.click("#play")
        expect(light.locator("#experiment")).to_have_attribute("data-state", "ended")
        light.click("#unwatch")
        light.click("#tab-results")
        light.click("#experiments-list [data-run='who-balances']")
        expect(light.locator("#results-detail .charts svg.chart").last).to_be_visible()
        album.take(light, "dashboard_results")
        models_on_a_lake()
        light.set_viewport_size(TALL)
        light.evaluate("location.hash = 'replay=two-models/hesitant/0/1'")
        expect(light.locator("#replay-tracks .chat li")).to_have_count(8)
        album.take(light, "dashboard_replay")


if __name__ == "__main__":
    main()
