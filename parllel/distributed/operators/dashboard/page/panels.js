// The questions of a card: one panel, or one in the row of each human player.

import { arrange } from "./dom.js";
import { QuestionPanel } from "./questions.js";

const OVER = new Set(["new", "ended", "failed", "died"]);

export class Panels {
  #panels = new Map();
  #episode = null;
  #id;
  #request;

  constructor(id, request) {
    this.#id = id;
    this.#request = request;
  }

  update(card, place, players) {
    // Questions of an episode that is over are not asked again.
    if (OVER.has(card.status) || card.episode !== this.#episode) this.#panels.clear();
    this.#episode = card.episode;
    const asked = new Map(card.questions.map((question) => [question.player_id, question]));
    for (const player of asked.keys()) {
      if (!this.#panels.has(player)) this.#panels.set(player, this.#panel());
    }
    for (const [player, panel] of this.#panels) panel.update(asked.get(player) ?? null);
    this.#place(place, null);
    for (const [id, player] of players) this.#place(player.asked, id);
  }

  /** Return the panel that asks something, or null if there is none or more than one. */
  get asking() {
    const asking = [...this.#panels.values()].filter((panel) => panel.question !== null);
    return asking.length === 1 ? asking[0] : null;
  }

  #place(place, player) {
    const panel = this.#panels.get(player);
    const hadFocus = place.contains(document.activeElement);
    arrange(place, panel ? [panel.form] : []);
    // Keys go on to this card, in its next episode too.
    if (hadFocus && !place.contains(document.activeElement)) place.closest(".card").focus({ preventScroll: true });
  }

  #panel() {
    const card = this.#id;
    return new QuestionPanel((number, action) => this.#request("api/act", { card, number, action }, true));
  }
}
