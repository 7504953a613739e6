// One recorded episode on the replay page: its outcome, and the step at the scrubber.

import { chatItems, hasChat } from "./chat.js";
import { Fields, arrange, copyOf, element, setData, show } from "./dom.js";
import { LastAction } from "./last_action.js";
import { writeTerminalText } from "./terminal_text.js";
import { numberText } from "./words.js";

export class Track {
  node = copyOf("track-template").firstElementChild;
  recording;
  #fields = new Fields(this.node);
  #moves = new Map();

  constructor(recording) {
    this.recording = recording;
  }

  /** Show what is known of the episode by now.
      series: the number of its line in the chart; null for a game, whose players have lines. */
  update(overview, series) {
    this.recording.update(overview);
    const { operator, episode, seed, records } = overview;
    setData(this.node, "operator", operator);
    setData(this.#fields.node("name"), "series", series);
    this.#fields.write({ name: operator, outcome: outcomeText(overview) });
    this.#fields.writeOrHide("failure", records.find((one) => one.failure)?.failure ?? null);
    const unplayed = records.find((one) => one.unplayed)?.unplayed;
    if (unplayed !== undefined) this.node.querySelector(".unplayed .chat").replaceChildren(...chatItems(unplayed));
    this.#fields.node("episode").textContent = `Episode ${episode}, seed ${numberText(seed)}`;
  }

  /** Show a step, or the last one of an episode that is over by then. */
  show(index) {
    const { length } = this.recording;
    const isOver = index >= length;
    const records = this.recording.step(Math.min(index, length - 1));
    setData(this.node, "waits", records === undefined && length > 0 ? "" : null);
    const over = length === 0 ? "No step was recorded" : `Over after ${length} ${length === 1 ? "step" : "steps"}`;
    this.#fields.writeOrHide("over", isOver ? over : null);
    const isLast = index >= length - 1;
    const unplayed = this.node.querySelector(".unplayed");
    show(unplayed, isLast && unplayed.querySelector(".chat").children.length > 0);
    if (records === undefined) return;
    setData(this.node, "step", records[0].step ?? Math.min(index, length - 1) + 1);
    const moves = new Map(records.map((record) => [record.player_id ?? "", record]));
    for (const player of moves.keys()) {
      if (!this.#moves.has(player)) this.#moves.set(player, new Move(`${this.recording.overview.operator}:${player}`));
    }
    for (const [player, record] of moves) this.#moves.get(player).update(record);
    arrange(this.node.querySelector(".moves"), [...moves.keys()].map((player) => this.#moves.get(player).node));
  }

  /** Return the index of the step that is shown. */
  at(index) {
    return Math.min(index, this.recording.length - 1);
  }
}

/** What one operator did in a step. */
class Move {
  node = copyOf("move-template").firstElementChild;
  #fields = new Fields(this.node);
  #last;
  #record = null;

  constructor(name) {
    this.#last = new LastAction(this.node.querySelector(".last"), `replay:${name}`);
  }

  update(record) {
    if (record === this.#record) return;
    this.#record = record;
    const { player_id: player, operator_id: operator, text } = record;
    this.#fields.writeOrHide("player", player === undefined ? null : `${player} · ${operator}`);
    this.#fields.write({
      step: numberText(record.step),
      reward: numberText(record.reward),
      "episode-reward": numberText(record.episode_reward),
    });
    writeTerminalText(this.#fields.node("text"), typeof text === "string" ? text : null);
    const isModel = hasChat(record);
    this.#last.update(record, isModel ? null : "human");
    show(this.node.querySelector(".chat"), isModel);
    this.node.querySelector(".chat").replaceChildren(...(isModel ? chatItems(record) : []));
  }
}

function outcomeText({ records, n_steps }) {
  if (!records.length) return "Abandoned, or still being played";
  return records
    .map(({ player_id, status, total_reward, episode_length }) => {
      const who = player_id === undefined || player_id === null ? "" : `${player_id}: `;
      const length = player_id === undefined ? `, ${episode_length ?? n_steps} steps` : "";
      return `${who}${status === "failed" ? "Failed, return" : "Return"} ${numberText(total_reward)}${length}`;
    })
    .join(" · ");
}
