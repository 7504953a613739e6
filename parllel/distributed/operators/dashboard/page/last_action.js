// The last action, and the answer of a language model.

import { Fields, copyOf, rememberOpen, show } from "./dom.js";
import { numberText, secondsText, valueText } from "./words.js";

const NAMED = new Set(["human", "chess"]);
const MAX_NAME = 20;

export class LastAction {
  #place;
  #fields = null;
  #name;

  constructor(place, name) {
    this.#place = place;
    this.#name = name;
  }

  /** type: of the operator; null for a game. */
  update(last, type) {
    show(this.#place, last !== null);
    if (last === null) return;
    this.#fields ??= this.#build();
    const [raw, action] = [last.raw ?? "", valueText(last.action)];
    // The name of a move, if it says more than its number and there is nothing else to read.
    const isName = NAMED.has(type) && raw.length <= MAX_NAME;
    const hasAnswer = raw !== "" && !isName;
    this.#fields.write({
      action,
      latency: secondsText(last.latency_s),
      tokens: numberText(last.tokens),
      raw,
      parsed: valueText(last.parsed),
      executed: valueText(last.executed),
    });
    this.#fields.writeOrHide("said", isName && raw !== action ? raw : null);
    this.#fields.writeOrHide("illegal", last.illegal ? "illegal" : null);
    this.#fields.writeOrHide("misread", last.understood === false ? "not understood" : null);
    show(this.#place.querySelector(".tokens"), (last.tokens ?? null) !== null);
    show(this.#place.querySelector(".answer"), hasAnswer);
  }

  #build() {
    this.#place.append(copyOf("last-template"));
    rememberOpen(this.#place.querySelector("details"), `answer:${this.#name}`);
    return new Fields(this.#place);
  }
}
