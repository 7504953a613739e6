// The dialog that adds an operator, or a game with its players.

import { copyOf, element, setText, show } from "./dom.js";
import { FieldError, operatorBody, gameBody } from "./add_fields.js";
import { RefusedError, get, post } from "./server.js";

// Placeholders of the settings, by kind.
const SETTINGS = {
  human: '{"action_names": ["rock", "paper", "scissors"]}',
  llm: '{"model": "...", "base_url": "http://..."}',
  rl: '{"best": true}',
};

const at = (id) => document.getElementById(id);

export class AddDialog {
  #dialog = at("add-dialog");
  #form = at("add-form");
  #kinds = [];
  #games = [];
  #envs = [];
  #taken = new Set();
  #isNamed = false; // by the person; until then the kind names it
  #apply;

  /** apply: called with the snapshot in the server's reply. */
  constructor(apply) {
    this.#apply = apply;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#form.addEventListener("click", ({ target }) => {
      if (target.closest("[data-close]")) this.#dialog.close();
      target.closest(".remove")?.closest("[data-row]").remove();
    });
    for (const radio of this.#form.elements.what) radio.addEventListener("change", () => this.#showFields());
    at("operator-type").addEventListener("change", () => this.#showFields());
    at("policy").addEventListener("input", () => this.#suggestName());
    at("env-id").addEventListener("input", () => this.#suggestPlayers());
    at("operator-id").addEventListener("input", ({ target }) => (this.#isNamed = target.value !== ""));
    at("add-player").addEventListener("click", () => this.#addRow(`player_${at("rows").children.length}`));
  }

  update({ cards }) {
    this.#taken = new Set(cards.map((card) => card.id));
  }

  async open() {
    this.#say(null);
    this.#isNamed = false;
    // Filled with the server's last offer until it replies again: fields that move while the user clicks
    // would catch the click for another.
    this.#showFields();
    this.#dialog.showModal();
    at(this.#isGame() ? "operator-id" : "operator-type").focus();
    try {
      this.#offer(await get("api/kinds"));
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      this.#say(error.message);
    }
  }

  #offer({ kinds, env_ids, games, illegal, seats }) {
    this.#kinds = kinds;
    this.#games = games;
    this.#envs = env_ids;
    options(at("operator-type"), kinds.filter((one) => one.is_operator).map((one) => one.kind), "baseline");
    options(at("illegal"), illegal);
    options(at("seats"), seats);
    this.#showFields();
  }

  #isGame() {
    return at("add-game").checked;
  }

  #showFields() {
    const isGame = this.#isGame();
    const kind = this.#kinds.find((one) => one.kind === at("operator-type").value);
    for (const node of this.#form.querySelectorAll(".one")) show(node, !isGame);
    for (const node of this.#form.querySelectorAll(".game")) show(node, isGame);
    setText(at("add-title"), isGame ? "Add game" : "Add operator");
    at("env-id").placeholder = isGame ? "pettingzoo/classic/tictactoe_v3" : "CartPole-v1, or file.py:function";
    const names = isGame ? this.#games.map((game) => game.env_id) : this.#envs;
    at("env-ids").replaceChildren(...names.map((value) => element("option", { value })));
    if (!isGame && kind) {
      for (const node of this.#form.querySelectorAll(".llm")) show(node, kind.kind === "llm");
      show(this.#form.querySelector(".worker"), kind.kind === "program");
      // The model of a language model has its own field.
      show(this.#form.querySelector(".fields .policy"), kind.policy === "needed");
      const [unlikely, likely] = kind.kind === "baseline" ? ["", "random"] : ["random", ""];
      if (at("policy").value === unlikely) at("policy").value = likely;
      setText(at("needs"), `Needs ${kind.needs}`);
      at("settings").placeholder = kind.kind === "llm" ? '{"temperature": 0}' : (SETTINGS[kind.kind] ?? "{}");
    }
    at("add-player").disabled = this.#kinds.length === 0;
    if (isGame && this.#kinds.length && at("rows").children.length === 0) {
      this.#setRows(this.#players() ?? ["player_0", "player_1"]);
    }
    this.#suggestName();
  }

  #suggestName() {
    if (this.#isNamed) return;
    const kind = at("operator-type").value;
    const plain = kind === "baseline" && /^\w+$/.test(at("policy").value) ? at("policy").value : kind;
    at("operator-id").value = this.#free(this.#isGame() ? "game" : plain);
  }

  #free(name) {
    let free = name;
    for (let i = 2; this.#taken.has(free); i += 1) free = `${name}-${i}`;
    return free;
  }

  /** Return the names of the game's players, if the server knows them. */
  #players() {
    return this.#games.find((game) => game.env_id === at("env-id").value)?.players;
  }

  #suggestPlayers() {
    const players = this.#players();
    if (this.#isGame() && players) this.#setRows(players);
  }

  #setRows(players) {
    const rows = [...at("rows").children];
    rows.slice(players.length).forEach((row) => row.remove());
    players.forEach((player, i) => {
      if (rows[i]) rows[i].querySelector("[name=player-id]").value = player;
      else this.#addRow(player);
    });
  }

  #addRow(player) {
    const row = copyOf("row-template").firstElementChild;
    const [id, type, name, policy] = ["id", "type", "operator", "policy"].map((part) =>
      row.querySelector(`[name=player-${part}]`),
    );
    id.value = player;
    options(type, this.#kinds.filter((one) => one.is_player).map((one) => one.kind), "baseline");
    let isNamed = false;
    name.addEventListener("input", () => (isNamed = name.value !== ""));
    const changed = () => {
      const kind = this.#kinds.find((one) => one.kind === type.value);
      const isProgram = type.value === "program";
      show(policy.closest("label"), isProgram || kind?.policy === "needed");
      setText(row.querySelector(".policy span"), isProgram ? "Command" : "Policy");
      policy.placeholder = kind?.needs ?? "";
      row.querySelector("[name=player-settings]").placeholder = SETTINGS[type.value] ?? "{}";
      if (!isNamed) name.value = `${type.value}-${[...at("rows").children].indexOf(row) + 1}`;
    };
    policy.value = "random";
    type.addEventListener("change", changed);
    at("rows").append(row);
    changed();
  }

  async #submit() {
    this.#say(null);
    const button = at("add-submit");
    try {
      const body = this.#isGame() ? { game: gameBody(this.#kinds) } : { operator: operatorBody(this.#kinds) };
      button.disabled = true;
      this.#apply(await post("api/cards", body));
      this.#dialog.close();
      this.#clear();
    } catch (error) {
      if (!(error instanceof RefusedError || error instanceof FieldError)) throw error;
      this.#say(error.message);
      error.field?.focus();
    } finally {
      button.disabled = false;
    }
  }

  /** Clear the fields, except those that the next operator to compare will share. */
  #clear() {
    const [type, env, isGame] = [at("operator-type").value, at("env-id").value, this.#isGame()];
    this.#form.reset();
    at("operator-type").value = type;
    at("env-id").value = env;
    at("add-game").checked = isGame;
    at("rows").replaceChildren();
  }

  #say(sentence) {
    setText(at("add-error"), sentence ?? "");
    show(at("add-error"), sentence !== null);
  }
}

/** Set the options of a `select`, keeping its choice. */
function options(select, values, first = values[0]) {
  const before = select.value;
  select.replaceChildren(...values.map((value) => element("option", { value }, value)));
  select.value = values.includes(before) ? before : first;
}
