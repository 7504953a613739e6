// Commands for all operators.

import { element, setData, setText, show } from "./dom.js";

const at = (id) => document.getElementById(id);

export class Bar {
  /** wish: takes a path of the server and its body. */
  constructor(wish) {
    const commands = {
      play: () => wish("api/play"),
      stop: () => wish("api/stop"),
      "step-all": () => wish("api/step"),
      "reset-all": () => wish("api/reset", seedOf(at("seed"))),
    };
    for (const [id, command] of Object.entries(commands)) at(id).addEventListener("click", command);
    at("bar").addEventListener("submit", (event) => {
      event.preventDefault();
      // Enter in the field of the seed.
      if (!at("reset-all").disabled) commands["reset-all"]();
    });
    at("speed").addEventListener("change", ({ target }) => {
      wish("api/speed", { steps_per_s: target.value === "max" ? null : Number(target.value) });
    });
    // Without cards: it says what Play will do, and plays nothing yet.
    at("go-on").addEventListener("change", ({ target }) => wish("api/play", { cards: [], go_on: target.checked }));
  }

  update(state) {
    const isWatched = state.experiment !== null;
    const hasCards = state.cards.length > 0;
    for (const id of ["play", "stop", "step-all"]) at(id).disabled = !hasCards && !isWatched;
    for (const id of ["reset-all", "seed"]) at(id).disabled = !hasCards || isWatched;
    show(at("add"), !isWatched);
    show(at("go-on").parentElement, !isWatched);
    setData(at("phase"), "phase", state.phase);
    setText(at("phase"), state.phase === "playing" ? "Playing" : "Stopped");
    at("seed").placeholder = state.seed === null ? "0" : String(state.seed + 1);
    at("go-on").checked = state.go_on;
    showSpeed(at("speed"), state.speed);
  }
}

function seedOf(input) {
  return input.value.trim() === "" ? {} : { seed: Number(input.value) };
}

function showSpeed(select, speed) {
  const value = speed === null ? "max" : String(speed);
  if (select.value === value) return;
  if (![...select.options].some((option) => option.value === value)) {
    select.prepend(element("option", { value }, `${value} steps/s`));
  }
  select.value = value;
}
