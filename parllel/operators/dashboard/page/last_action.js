// What was played last, and what a language model answered.

import { Fields, copyOf, rememberOpen, show } from "./dom.js";
import { numberText, secondsText, valueText } from "./words.js";

export class LastAction {
  #place;
  #fields = null;
  #name;

  constructor(place, name) {
    this.#place = place;
    this.#name = name;
  }

  update(last) {
    show(this.#place, last !== null);
    if (last === null) return;
    this.#fields ??= this.#build();
    const hasAnswer = last.raw !== null && last.raw !== undefined;
    this.#fields.write({
      action: valueText(last.action),
      latency: secondsText(last.latency_s),
      tokens: numberText(last.tokens),
      raw: hasAnswer ? last.raw : "",
      parsed: valueText(last.parsed),
      executed: valueText(last.executed),
    });
    this.#fields.writeOrHide("illegal", last.illegal ? "illegal" : null);
    show(this.#place.querySelector(".tokens"), (last.tokens ?? null) !== null);
    show(this.#place.querySelector(".answer"), hasAnswer);
  }

  #build() {
    this.#place.append(copyOf("last-template"));
    rememberOpen(this.#place.querySelector("details"), `answer:${this.#name}`);
    return new Fields(this.#place);
  }
}
