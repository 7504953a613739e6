// The video of a replayed episode, if it was filmed: it follows the scrubber.

import { show } from "./dom.js";
import { getBlob } from "./server.js";

const FPS = 30; // of all videos that experiments write

export class Film {
  #place = document.getElementById("replay-film");
  #video = this.#place.querySelector("video");
  #opened = null;
  #step = 0;

  constructor() {
    this.#video.addEventListener("loadedmetadata", () => this.seek(this.#step));
  }

  /** Show the video of an episode, if it has one. */
  async open({ run, operator, episode, video }) {
    this.close();
    const opened = {};
    this.#opened = opened;
    if (!video) return;
    try {
      // Fetched as a whole: the server sends no ranges, without which a browser cannot go back.
      const blob = await getBlob(`api/video?${new URLSearchParams({ run, operator, episode })}`);
      if (this.#opened !== opened) return;
      this.#video.src = URL.createObjectURL(blob);
      show(this.#place, true);
    } catch (error) {
      // The steps can be replayed without it.
      console.warn(`video of episode ${episode}: ${error.message}`);
    }
  }

  /** Show the picture after a step, or the last one. */
  seek(step) {
    this.#step = step;
    const { duration } = this.#video;
    // The middle of a picture's time, since its beginning may be rounded to the one before.
    if (duration > 0) this.#video.currentTime = Math.min((step + 0.5) / FPS, duration - 0.5 / FPS);
  }

  close() {
    this.#opened = null;
    show(this.#place, false);
    if (!this.#video.src) return;
    URL.revokeObjectURL(this.#video.src);
    this.#video.removeAttribute("src");
    this.#video.load();
  }
}
