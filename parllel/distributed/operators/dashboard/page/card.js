// One operator, or one game with its players.

import { Fields, arrange, copyOf, element, setData, show } from "./dom.js";
import { LastAction } from "./last_action.js";
import { Panels } from "./panels.js";
import { Player } from "./player.js";
import { Squares } from "./squares.js";
import { writeTerminalText } from "./terminal_text.js";
import { isAtRest, numberText, shortName, shownStatus, statusText } from "./words.js";

export class Card {
  node = copyOf("card-template").firstElementChild;
  #fields = new Fields(this.node);
  #last;
  #totals = null;
  #canvas = null;
  #players = new Map();
  #panels;
  #squares;
  #state = null;
  #isOnline = true;

  /** request: called with a path of the server and the body, such as ("api/step", {"cards": [id]}). */
  constructor(id, request) {
    this.node.dataset.card = id;
    this.node.setAttribute("aria-label", id);
    this.node.querySelector("summary").setAttribute("aria-label", `Menu of ${id}`);
    this.#last = new LastAction(this.node.querySelector(".last"), id);
    this.#panels = new Panels(id, request);
    this.#squares = new Squares(this.node.querySelector(".picture"));
    const one = { cards: [id] };
    const bodies = { step: one, reset: one, restart: { card: id }, remove: { card: id } };
    this.node.addEventListener("click", ({ target }) => {
      const wanted = target.closest("[data-do]")?.dataset.do;
      if (!(wanted in bodies)) return;
      this.node.querySelector(".menu").open = false;
      request(`api/${wanted}`, bodies[wanted]);
    });
  }

  /** Show the card's state from a snapshot. */
  update(card, { phase, experiment }) {
    this.#state = card;
    this.node.dataset.status = card.status;
    this.node.dataset.kind = card.kind;
    this.#fields.write({
      name: card.id,
      type: card.kind === "game" ? "game" : card.operator_type,
      episode: numberText(card.episode),
      seed: numberText(card.seed),
      step: numberText(card.step),
      reward: numberText(card.reward),
      "episode-reward": numberText(card.episode_reward),
    });
    const [env, policy] = [card.env_id ?? "–", card.policy ?? ""];
    this.#fields.writeShort("env", shortName(env), env);
    this.#fields.writeShort("policy", shortName(policy), policy);
    // Seeds derived by experiments have ten digits.
    this.#fields.node("seed").classList.toggle("long", card.seed > 999999);
    show(this.node.querySelector(".policy"), Boolean(card.policy));
    show(this.node.querySelector(".menu"), experiment === null);
    writeTerminalText(this.#fields.node("text"), card.text);
    this.#trouble(card, experiment);
    this.#last.update(card.last, card.operator_type);
    this.#writeTotals(card.totals);
    this.#showPlayers(card.players ?? []);
    this.#panels.update(card, this.node.querySelector(":scope > .asked"), this.#players);
    // The picture is kept: the state may be older than a picture that arrived before it.
    show(this.node.querySelector(".picture"), card.frame !== null && this.#canvas !== null);
    this.tick(phase);
  }

  /** Show whether there is a connection. Without one, the status is outdated. */
  connected(isOnline, phase) {
    this.#isOnline = isOnline;
    for (const player of this.#players.values()) player.connected(isOnline);
    this.tick(phase);
  }

  /** Show the status with its elapsed seconds. */
  tick(phase) {
    const shown = this.#isOnline ? shownStatus(this.#state, phase, this.node.dataset.shown) : "offline";
    setData(this.node, "shown", shown);
    this.#fields.write({ status: statusText(this.#state, shown) });
    this.#sayWhatIsOld();
    // On each tick, because pictures arrive separately from states.
    this.#squares.update(this.#isOnline ? this.#panels.asking : null, this.#canvas);
  }

  /** Say if the picture is outdated: nobody looked during the last steps, or the worker sent no picture. */
  #sayWhatIsOld() {
    const { episode, step } = this.#canvas?.dataset ?? {};
    const isOther = episode !== String(this.#state.episode);
    const isOld = step !== undefined && isAtRest(this.#state) && (isOther || step !== String(this.#state.step));
    this.#fields.writeOrHide("old", isOld ? `Picture of ${isOther ? `episode ${episode}, ` : ""}step ${step}` : null);
  }

  /** Return the canvas for pictures, creating it for the first one. */
  canvas() {
    const place = this.node.querySelector(".picture");
    if (this.#canvas === null) {
      this.#canvas = element("canvas", { "data-field": "frame", role: "img" });
      place.prepend(this.#canvas);
    }
    this.#canvas.setAttribute("aria-label", `What ${this.#state.id} sees`);
    show(place, true);
    return this.#canvas;
  }

  #trouble(card, experiment) {
    const trouble = this.node.querySelector(".trouble");
    const isBad = card.status === "failed" || card.status === "died";
    show(trouble, isBad || Boolean(card.message));
    setData(trouble, "bad", isBad ? "" : null);
    this.#fields.write({ message: card.message ?? "" });
    const mayAct = experiment === null;
    show(trouble.querySelector("[data-do=restart]"), mayAct && card.status === "died");
    show(trouble.querySelector("[data-do=reset]"), mayAct && card.status === "failed");
  }

  #writeTotals(totals) {
    const place = this.node.querySelector(".totals");
    show(place, totals.n_ended + totals.n_failed > 0);
    if (place.hidden) return;
    if (this.#totals === null) {
      place.append(copyOf("totals-template"));
      this.#totals = new Fields(place);
    }
    this.#totals.write({
      "n-ended": numberText(totals.n_ended),
      "n-failed": numberText(totals.n_failed),
      "mean-reward": numberText(totals.mean_reward),
      "mean-length": numberText(totals.mean_length),
      "total-tokens": numberText(totals.tokens),
      understood: `${numberText(totals.understood)} of ${numberText(totals.decisions)}`,
    });
    for (const some of place.querySelectorAll(".some")) show(some, totals.n_ended > 0);
    show(place.querySelector(".counted"), totals.tokens !== null);
    show(place.querySelector(".understood"), totals.decisions > 0);
    setData(place.querySelector(".understood"), "bad", totals.understood < totals.decisions / 2 ? "" : null);
    show(place.querySelector(".bad"), totals.n_failed > 0);
  }

  #showPlayers(players) {
    const place = this.node.querySelector(".players");
    const wanted = new Map();
    for (const state of players) {
      const id = state.player_id;
      const player = this.#players.get(id) ?? new Player(id, this.#state.id);
      player.update(state);
      wanted.set(id, player);
    }
    this.#players = wanted;
    arrange(place, [...wanted.values()].map((player) => player.node));
    show(place, players.length > 0);
  }
}
