// Experiments of scripts: the list to choose from, and the progress of the watched one.

import { Fields, element, setData, setText, show } from "./dom.js";

const STATES = {
  starting: "Starting",
  running: "Running",
  ended: "Ended",
  stopped: "Stopped early",
  failed: "Failed",
};

export class ExperimentPanel {
  #panel = document.getElementById("experiment");
  #fields = new Fields(this.#panel);
  #scripts = document.getElementById("scripts");
  #listed = "";

  /** request: called with a path of the server and the body. */
  constructor(request) {
    this.#scripts.addEventListener("click", ({ target }) => {
      if (target.dataset.script) request("api/watch", { script: target.dataset.script });
    });
    document.getElementById("unwatch").addEventListener("click", () => request("api/unwatch"));
  }

  update({ scripts, experiment, phase }) {
    show(this.#panel, experiment !== null);
    show(this.#scripts, experiment === null && scripts.length > 0);
    if (this.#listed !== JSON.stringify(scripts)) this.#list(scripts);
    if (experiment !== null) this.#write(experiment, phase);
  }

  #list(scripts) {
    this.#listed = JSON.stringify(scripts);
    const buttons = scripts.map((script) => {
      const name = script.split("/").at(-1);
      const isAlone = scripts.filter((other) => other.split("/").at(-1) === name).length === 1;
      return element("button", { type: "button", "data-script": script, title: script }, isAlone ? name : script);
    });
    this.#scripts.querySelector(".names").replaceChildren(...buttons);
  }

  #write(experiment, phase) {
    const { name, folder, n_episodes, n_done, n_failed, state, message } = experiment;
    setData(this.#panel, "state", state);
    const isHeld = state === "running" && phase === "stopped";
    this.#fields.write({
      name,
      state: isHeld ? "Held: press Play or Step all" : (STATES[state] ?? state),
      progress: `${n_done} of ${n_episodes} episodes${n_failed ? `, ${n_failed} failed` : ""}`,
      folder: folder ?? "",
    });
    this.#fields.writeOrHide("message", message);
    const progress = this.#panel.querySelector("progress");
    progress.max = Math.max(1, n_episodes);
    progress.value = n_done;
    const link = document.getElementById("experiment-results");
    show(link, folder !== null && n_done > 0);
    link.setAttribute("href", `#results=${encodeURIComponent(folder ?? "")}`);
    setText(document.getElementById("unwatch"), state === "running" ? "End, and back to my cards" : "Back to my cards");
  }
}
