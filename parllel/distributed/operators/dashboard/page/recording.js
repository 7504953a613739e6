// One recorded episode, whose steps are fetched in pages as they are looked at.

import { get } from "./server.js";

const ALIGNED = 100; // steps; a page begins at a multiple, so that going backwards does not fetch one page per step
const MAX_KEPT = 5000; // steps

/** Return the answer of `api/episode`. */
export function overviewOf(run, operator, episode) {
  return get(`api/episode?${new URLSearchParams({ run, operator, episode })}`);
}

export class Recording {
  overview;
  #steps = new Map();
  #wanted = 0;
  #loading = null;

  /** overview: the answer of `api/episode`. */
  constructor(overview) {
    this.overview = overview;
  }

  /** Take the newest answer of `api/episode`. */
  update(overview) {
    // The episode has begun again, after a failure.
    if (overview.n_steps < this.length) this.#steps.clear();
    this.overview = overview;
  }

  get key() {
    return JSON.stringify([this.overview.operator, this.overview.episode]);
  }

  get length() {
    return this.overview.n_steps;
  }

  /** Return the records of a step, from 0; undefined before `load`. */
  step(index) {
    return this.#steps.get(index);
  }

  /** Fetch a step. Of several requested meanwhile, only the last is fetched. */
  load(index) {
    this.#wanted = index;
    this.#loading ??= this.#loadWanted().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #loadWanted() {
    while (!this.#steps.has(this.#wanted)) {
      const index = this.#wanted;
      // A page of large steps may end before the one that is wanted.
      for (const start of [index - (index % ALIGNED), index]) {
        if (!this.#steps.has(index)) await this.#fetch(start);
      }
    }
  }

  async #fetch(from) {
    const { run, operator, episode } = this.overview;
    const { steps } = await get(`api/steps?${new URLSearchParams({ run, operator, episode, from })}`);
    if (this.#steps.size > MAX_KEPT) this.#steps.clear();
    steps.forEach((step, i) => this.#steps.set(from + i, step));
  }
}
