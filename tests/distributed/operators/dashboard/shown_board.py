"""What people do on the dashboard's page, and what it shows, for tests."""

from __future__ import annotations

import base64
import io
import json
import time

import numpy as np
from chromium import LONG_MS, expect
from PIL import Image

PICTURE = "canvas => canvas.toDataURL('image/png').split(',')[1]"
CLEAR = """async () => {
    const headers = {"Content-Type": "application/json"};
    const {cards} = await (await fetch("api/state")).json();
    for (const {id} of cards)
        await fetch("api/remove", {method: "POST", headers, body: JSON.stringify({card: id})});
}"""


class ShownBoard:
    """The page of a board, in a browser."""

    def __init__(self, page):
        self.page = page
        expect(page.locator("#connection")).to_have_attribute("data-state", "connected")

    # ------------------------------------------------------------------ what it shows

    def card(self, name):
        """Return the card of an operator or a game."""
        return self.page.locator(f"#cards > article[data-card='{name}']")

    def field(self, name, field):
        """Return what a card says of something."""
        # A player of a game, and the menu's entries, have fields of their own.
        return self.card(name).locator(f"[data-field='{field}']").first

    def player(self, name, player):
        """Return the row of a player on the card of a game."""
        return self.card(name).locator(f"[data-player='{player}']")

    def expect(self, name, status=None, **fields):
        """Wait until a card shows some values, and then has a status, that of the protocol."""
        for field, value in fields.items():
            expect(self.field(name, field.replace("_", "-"))).to_have_text(str(value))
        # Last: it may be that of the step before until the values have come.
        if status is not None:
            expect(self.card(name)).to_have_attribute("data-status", status)

    def number(self, name, field):
        """Return a number that a card shows now; None for a dash."""
        text = self.field(name, field).inner_text()
        return None if text == "\N{EN DASH}" else float(text.replace(",", ""))

    def until(self, condition):
        """Wait until a condition holds that pages have no word for."""
        deadline = time.monotonic() + LONG_MS / 1000
        while not condition():
            assert time.monotonic() < deadline, "it did not come true"
            self.page.wait_for_timeout(20)

    def picture(self, name, step=None):
        """Return what is painted on a card, [height, width, 3] uint8; of a step, waiting for it."""
        frame = self.field(name, "frame")
        if step is not None:
            expect(frame).to_have_attribute("data-step", str(step))
        with Image.open(io.BytesIO(base64.b64decode(frame.evaluate(PICTURE)))) as picture:
            return np.asarray(picture.convert("RGB"))

    # ------------------------------------------------------------------ what people do

    def add(self, name, kind, env_id, **fields):
        """Add an operator by the dialog; fields: by their ids, with underscores."""
        self.page.click("#add")
        self.page.check("#add-one")
        self.page.select_option("#operator-type", kind)
        self.page.fill("#operator-id", name)
        self.page.fill("#env-id", str(env_id))
        self._fill(fields)
        self._submit(name)

    def add_game(self, name, env_id, players, **fields):
        """Add a game by the dialog; players: (id, kind, operator, policy) of each."""
        self.page.click("#add")
        self.page.check("#add-game")
        self.page.fill("#operator-id", name)
        self.page.fill("#env-id", str(env_id))
        rows = self.page.locator("#add-dialog [data-row]")
        # The first rows come with what the server offers; before, each click would add one more.
        expect(self.page.locator("#add-player")).to_be_enabled()
        while rows.count() < len(players):
            self.page.click("#add-player")
        for number, (player, kind, operator, policy) in enumerate(players):
            row = rows.nth(number)
            row.locator("[name=player-id]").fill(player)
            row.locator("[name=player-type]").select_option(kind)
            row.locator("[name=player-operator]").fill(operator)
            if policy is not None:
                row.locator("[name=player-policy]").fill(policy)
        self._fill(fields)
        self._submit(name)

    def _fill(self, fields):
        more = self.page.locator("#add-dialog details.more")
        for field, value in fields.items():
            at = self.page.locator(f"#{field.replace('_', '-')}")
            if not at.is_visible():
                more.locator("summary").click()
            if at.evaluate("node => node.tagName") == "SELECT":
                at.select_option(value)
            else:
                at.fill(value if isinstance(value, str) else json.dumps(value))

    def _submit(self, name):
        self.page.click("#add-submit")
        expect(self.page.locator("#add-dialog")).to_be_hidden()
        expect(self.card(name)).to_be_visible()

    def reset(self, seed=None):
        """Reset all, with a seed or the next one."""
        self.page.fill("#seed", "" if seed is None else str(seed))
        self.page.click("#reset-all")

    def do(self, name, what):
        """Choose something of a card's menu."""
        menu = self.card(name).locator("details[data-do=menu]")
        menu.locator("summary").click()
        menu.locator(f"[data-do={what}]").click()

    def clear(self):
        """Take all cards away, whatever the page shows."""
        self.page.evaluate(CLEAR)
        expect(self.page.locator("#cards > article")).to_have_count(0)
