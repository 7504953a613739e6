// Replay of a recorded episode, beside the other operators' episodes of the same seed.
//
//   #replay=RUN/OPERATOR/EPISODE/STEP --> open --> recordings --> tracks, chart
//   scrubber, keys, chart, Play       --> #seek --> each track shows its step, once that is fetched

import { arrange, setData, setText, show } from "./dom.js";
import { replayAddress } from "./episodes.js";
import { Film } from "./film.js";
import { LineChart, SERIES } from "./line_chart.js";
import { Recording, overviewOf } from "./recording.js";
import { RefusedError } from "./server.js";
import { Track } from "./track.js";

const MAX_BESIDE = 7;
const AHEAD = 50; // steps that are fetched before Play arrives there
const SETTLED_MS = 300; // browsers limit how often the address may change
const AGAIN_MS = 3000; // between looks at a running experiment

const at = (id) => document.getElementById(id);

export class ReplayView {
  #address = null; // run, operator, episode
  #overviews = [];
  #tracks = [];
  #chart = null;
  #film = new Film();
  #index = 0;
  #length = 0;
  #timer = null;
  #settling = null;
  #say;

  /** say: shows the sentence of an error; null clears it. */
  constructor(say) {
    this.#say = say;
    at("replay-step").addEventListener("input", ({ target }) => this.#seek(Number(target.value) - 1));
    at("replay-play").addEventListener("click", () => this.#play(this.#timer === null));
    at("replay-speed").addEventListener("change", () => this.#timer !== null && this.#play(true));
    document.addEventListener("keydown", (event) => this.#key(event));
    setTimeout(() => this.#again(), AGAIN_MS);
  }

  /** Show a step of an episode; parts: run, operator, episode, and the number of the step. */
  async open([run, operator, episode, step = "1"]) {
    const address = [run, operator, episode];
    if (JSON.stringify(address) === JSON.stringify(this.#address)) return this.#seek(Number(step) - 1);
    this.close();
    this.#address = address;
    this.#show([], { run });
    try {
      const overviews = await this.#fetch();
      if (this.#address !== address) return;
      this.#show(overviews, overviews[0]);
      this.#say(null);
      this.#seek(Number(step) - 1);
      await this.#film.open(overviews[0]);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      if (this.#address === address) this.#say(error.message);
    }
  }

  /** Return the overviews of the episode and of those beside it. */
  async #fetch() {
    const [run] = this.#address;
    const first = await overviewOf(...this.#address);
    const beside = first.beside.slice(0, MAX_BESIDE);
    return [first, ...(await Promise.all(beside.map((one) => overviewOf(run, one.operator, one.episode))))];
  }

  /** Show what a running experiment has recorded meanwhile. */
  async #again() {
    const [address, before] = [this.#address, this.#overviews];
    try {
      if (before[0]?.state !== "running" || document.visibilityState !== "visible") return;
      const overviews = await this.#fetch();
      if (this.#address !== address || JSON.stringify(overviews) === JSON.stringify(before)) return;
      this.#show(overviews, overviews[0]);
      this.#seek(this.#index);
      if (overviews[0].video && !before[0].video) await this.#film.open(overviews[0]);
    } catch (error) {
      // The page shows a lost connection elsewhere.
      if (!(error instanceof RefusedError)) throw error;
    } finally {
      setTimeout(() => this.#again(), AGAIN_MS);
    }
  }

  /** Stop playing and forget the episode. */
  close() {
    this.#play(false);
    clearTimeout(this.#settling);
    this.#address = null;
    this.#overviews = [];
    this.#tracks = [];
    this.#index = 0;
    this.#film.close();
  }

  #show(overviews, { run, name, label, operator, previous = null, next = null }) {
    for (const [id, episode] of [["replay-previous", previous], ["replay-next", next]]) {
      show(at(id), episode !== null);
      at(id).setAttribute("href", replayAddress(run, operator, episode));
    }
    at("replay-back").setAttribute("href", `#results=${encodeURIComponent(run)}`);
    setText(at("replay-name"), name ?? "");
    setText(at("replay-env"), label ?? "");
    this.#overviews = overviews;
    const lines = overviews.flatMap((overview) => overview.curves.map((curve) => [overview, curve]));
    const shown = new Map(this.#tracks.map((track) => [track.recording.key, track]));
    this.#tracks = overviews.map((overview) => {
      const own = lines.findIndex(([one, curve]) => one === overview && curve.name === overview.operator);
      const recording = new Recording(overview);
      const track = shown.get(recording.key) ?? new Track(recording);
      track.update(overview, own < 0 ? null : own % SERIES);
      return track;
    });
    arrange(at("replay-tracks"), this.#tracks.map((track) => track.node));
    setText(at("replay-at"), "");
    this.#length = Math.max(0, ...overviews.map((overview) => overview.n_steps));
    const curves = lines.map(([, { name: who, points }]) => ({ name: who, points: points.map(([i, y]) => [i + 1, y]) }));
    this.#chart = new LineChart("Return so far, by step", curves, "Step", (step) => this.#seek(step - 1));
    at("replay-curve").replaceChildren(this.#chart.node);
    for (const id of ["replay-step", "replay-play"]) at(id).disabled = this.#length === 0;
    show(at("replay-curve").parentElement, this.#length > 0);
    at("replay-step").max = Math.max(1, this.#length);
  }

  #seek(index) {
    if (this.#length === 0) return this.#draw();
    this.#index = Math.min(this.#length - 1, Math.max(0, Math.round(index) || 0));
    const step = this.#index + 1;
    at("replay-step").value = step;
    at("replay-step").setAttribute("aria-valuetext", `Step ${step} of ${this.#length}`);
    setText(at("replay-at"), `Step ${step} of ${this.#length}`);
    this.#chart.mark(step);
    this.#film.seek(step);
    this.#draw();
    clearTimeout(this.#settling);
    const { hash } = location;
    this.#settling = setTimeout(() => {
      // Whoever has followed a link meanwhile is not brought back: the page hears of it a little later.
      if (location.hash === hash) history.replaceState(null, "", replayAddress(...this.#address, step));
    }, SETTLED_MS);
  }

  #draw() {
    for (const track of this.#tracks) {
      track.show(this.#index);
      const next = [this.#index, this.#timer === null ? this.#index : this.#index + AHEAD].map((i) => track.at(i));
      const missing = next.find((i) => i >= 0 && track.recording.step(i) === undefined);
      if (missing !== undefined) this.#load(track, missing);
    }
  }

  async #load(track, index) {
    try {
      await track.recording.load(index);
      if (this.#tracks.includes(track)) track.show(this.#index);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      this.#play(false);
      this.#say(error.message);
    }
  }

  #play(isPlaying) {
    clearInterval(this.#timer);
    this.#timer = null;
    if (isPlaying && this.#length > 0) {
      if (this.#index === this.#length - 1) this.#seek(0);
      this.#timer = setInterval(() => this.#advance(), 1000 / Number(at("replay-speed").value));
    }
    const isOn = this.#timer !== null;
    setData(at("replay-play"), "pauses", isOn ? "" : null);
    at("replay-play").querySelector("use").setAttribute("href", isOn ? "#icon-pause" : "#icon-play");
    setText(at("replay-play").querySelector("span"), isOn ? "Pause" : "Play");
  }

  #advance() {
    // Waits for what is not fetched yet, rather than leaving it out.
    if (this.#tracks.some((track) => track.at(this.#index) >= 0 && !track.recording.step(track.at(this.#index)))) return;
    this.#seek(this.#index + 1);
    if (this.#index === this.#length - 1) this.#play(false);
  }

  #key(event) {
    const { target, key } = event;
    if (at("view-replay").hidden || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const isScrubber = target === at("replay-step");
    if (!isScrubber && target.closest("input, select, button, a, summary, [tabindex='0']")) return;
    const last = this.#length - 1;
    const to = { ArrowLeft: this.#index - 1, ArrowRight: this.#index + 1, Home: 0, End: last }[key];
    if (key === " ") this.#play(this.#timer === null);
    // The scrubber moves itself.
    else if (to !== undefined && !isScrubber) this.#seek(to);
    else return;
    event.preventDefault();
  }
}
