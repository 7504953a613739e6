// Commands for all operators.

import { element, setData, setText, show } from "./dom.js";

const at = (id) => document.getElementById(id);

export class Bar {
  /** request: called with a path of the server and the body. */
  constructor(request) {
    const commands = {
      play: () => request(at("play").dataset.pauses === undefined ? "api/play" : "api/stop"),
      "step-all": () => request("api/step"),
      "reset-all": () => request("api/reset", seedOf(at("seed"))),
    };
    for (const [id, command] of Object.entries(commands)) at(id).addEventListener("click", command);
    at("bar").addEventListener("submit", (event) => {
      event.preventDefault();
      // Enter pressed in the seed field.
      if (!at("reset-all").disabled) commands["reset-all"]();
    });
    at("speed").addEventListener("change", ({ target }) => {
      request("api/speed", { steps_per_s: target.value === "max" ? null : Number(target.value) });
    });
    // With an empty list of cards: it sets what Play will do, and plays nothing yet.
    at("autoplay").addEventListener("change", ({ target }) => request("api/play", { cards: [], autoplay: target.checked }));
  }

  /** Show a state. Without a connection it is outdated, and commands are disabled. */
  update(state, isOnline) {
    const isWatched = state.experiment !== null;
    const isPlaying = state.phase === "playing";
    const hasCards = state.cards.length > 0;
    // While an experiment loads its script there is nothing to play, and a click would be lost.
    const isReady = hasCards && (!isWatched || state.experiment.state === "running");
    at("play").disabled = !isOnline || !isReady;
    at("step-all").disabled = at("play").disabled || isPlaying;
    for (const id of ["reset-all", "seed"]) at(id).disabled = !isOnline || !hasCards || isWatched;
    for (const id of ["speed", "autoplay", "add"]) at(id).disabled = !isOnline;
    // Steps of all that wait for a slow operator can be cancelled as long as they have not started.
    showPlay(at("play"), isPlaying || state.steps_left > 1);
    show(at("add"), !isWatched);
    show(at("autoplay").parentElement, !isWatched);
    setData(at("phase"), "phase", isOnline ? state.phase : "unknown");
    setText(at("phase"), isOnline ? phaseText(state) : "Unknown");
    at("seed").placeholder = state.seed === null ? "0" : String(state.seed + 1);
    at("autoplay").checked = state.autoplay;
    showSpeed(at("speed"), state.speed);
  }
}

function seedOf(input) {
  return input.value.trim() === "" ? {} : { seed: Number(input.value) };
}

function phaseText({ phase, steps_left }) {
  if (phase === "playing") return "Playing";
  return steps_left > 1 ? `Stepping, ${steps_left} left` : "Stopped";
}

/** Turn the button into Pause or Play. Its name says what it does, so it needs no pressed state. */
function showPlay(button, pauses) {
  setData(button, "pauses", pauses ? "" : null);
  button.querySelector("use").setAttribute("href", pauses ? "#icon-pause" : "#icon-play");
  setText(button.querySelector("span"), pauses ? "Pause" : "Play");
}

function showSpeed(select, speed) {
  const value = speed === null ? "max" : String(speed);
  if (select.value === value) return;
  if (![...select.options].some((option) => option.value === value)) {
    select.prepend(element("option", { value }, `${value} steps/s`));
  }
  select.value = value;
}
