// Question to a person, answered by buttons, keys, a filtered list, or a line of JSON.
//
// An answered question stays in its place, greyed, until the next one: the page does not jump from step to step, and
// the focus stays.

import { Fields, copyOf, element, setData, setText, show } from "./dom.js";
import { RefusedError } from "./server.js";
import { writeTerminalText } from "./terminal_text.js";
import { valueText } from "./words.js";

// More actions than this become a list to filter. Actions with keys stay buttons: they are pressed, not read.
const MAX_WITH_KEYS = 24;
const MAX_WITHOUT = 8;
const KEYS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "space" };

export class QuestionPanel {
  form = copyOf("question-template").firstElementChild;
  #fields = new Fields(this.form);
  #free = this.form.querySelector(".free");
  #input = this.form.querySelector("input");
  #actions = this.form.querySelector(".actions");
  #shownActions = null;
  #answered = null; // number of the question whose answer was sent, until the server has accepted it
  #question = null; // shown now
  #latest = null; // asked by the server; null: none
  #isList = false;
  #act;

  /** act: sends `(number, action)`; its promise rejects with a RefusedError. */
  constructor(act) {
    this.#act = act;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#actions.addEventListener("click", (event) => {
      const button = event.target.closest("[data-action]");
      if (button) this.#answer(JSON.parse(button.dataset.action));
    });
    this.#input.addEventListener("input", () => this.#filter());
    this.form.questionPanel = this;
  }

  /** Show this question; null: none at the moment. */
  update(question) {
    this.#latest = question;
    const isAsked = question !== null && question.number !== this.#answered;
    setData(this.form, "question", isAsked ? question.number : null);
    setData(this.form, "asked", isAsked ? (question.player_id ?? "") : null);
    this.form.setAttribute("aria-disabled", String(!isAsked));
    if (!isAsked) return;
    this.#question = question;
    const actions = JSON.stringify([question.actions, question.space]);
    if (actions !== this.#shownActions) this.#showActions(question, actions);
    writeTerminalText(this.#fields.node("question-text"), question.text);
    this.#fields.writeOrHide("question-message", question.message);
  }

  /** The question that awaits an answer, or null. */
  get question() {
    return this.form.dataset.question === undefined ? null : this.#question;
  }

  /** Answer with an action, like its button. */
  choose(action) {
    this.#answer(action);
  }

  /** Narrow the buttons down to these names, one of which is to be pressed. */
  narrow(names) {
    if (this.#isList) {
      const [first] = names;
      let n = first.length;
      while (!names.every((name) => name.startsWith(first.slice(0, n)))) n -= 1;
      this.#input.value = first.slice(0, n);
      this.#filter();
    }
    this.#say(`Which of ${names.join(", ")}? Press one.`);
  }

  /** Return the button of a key, if there is one. */
  buttonOf(key) {
    const wanted = key.length === 1 ? key.toLowerCase() : key;
    return [...this.#actions.children].find((button) => button.keys.includes(wanted));
  }

  #showActions(question, shown) {
    this.#shownActions = shown;
    const actions = question.actions;
    const most = actions?.some((one) => one.keys.length) ? MAX_WITH_KEYS : MAX_WITHOUT;
    this.#isList = actions !== null && actions.length > most;
    show(this.#free, this.#isList || actions === null);
    show(this.form.querySelector("[data-do=act]"), actions === null);
    setData(this.#input, "field", this.#isList ? "filter" : "json");
    this.#input.value = "";
    this.#actions.classList.toggle("list", this.#isList);
    this.#fields.write({
      prompt: prompt(question),
      "free-label": this.#isList ? `Filter ${actions.length} actions` : `JSON of ${question.space ?? "the action"}`,
    });
    this.#actions.replaceChildren(...(actions ?? []).map(actionButton));
    // All buttons have one width, even in an incomplete last row.
    const longest = Math.max(1, ...[...this.#actions.children].map(lengthOf));
    this.#actions.style.setProperty("--longest", longest);
  }

  #filter() {
    if (!this.#isList) return;
    const wanted = this.#input.value.trim().toLowerCase();
    for (const button of this.#actions.children) show(button, button.dataset.name.toLowerCase().includes(wanted));
  }

  #submit() {
    const typed = this.#input.value.trim();
    if (!this.#isList) return this.#answerJson(typed);
    const found = [...this.#actions.children].filter((button) => !button.hidden);
    const exact = found.find((button) => button.dataset.name.toLowerCase() === typed.toLowerCase());
    const chosen = exact ?? (found.length === 1 ? found[0] : null);
    if (chosen) return chosen.click();
    this.#say(found.length ? `${found.length} actions match: go on typing, or press one.` : "No action matches.");
  }

  #answerJson(typed) {
    try {
      this.#answer(JSON.parse(typed));
    } catch {
      this.#say("This is not JSON: write a number, or a list such as [0.5, -1].");
    }
  }

  async #answer(action) {
    if (this.form.dataset.question === undefined) return;
    const question = this.#question;
    this.#answered = question.number;
    this.update(this.#latest);
    let refusal = null;
    try {
      await this.#act(question.number, action);
      this.#input.value = "";
      this.#filter();
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      refusal = error;
    }
    this.#answered = null;
    this.update(this.#latest);
    if (refusal !== null) this.#say(refusal.message);
  }

  #say(text) {
    this.#fields.writeOrHide("question-message", text);
  }
}

function prompt(question) {
  const who = question.player_id === null ? "Your move" : `Move of ${question.player_id}`;
  return question.actions?.some((one) => one.keys.length) ? `${who}: press a button or its key` : who;
}

function actionButton({ action, name, keys }) {
  const text = name ?? valueText(action);
  const attributes = { type: "button", "data-action": JSON.stringify(action), "data-name": text };
  const button = element("button", attributes, text);
  button.keys = keys;
  if (keys.length) button.setAttribute("aria-keyshortcuts", keys.join(" "));
  const shown = keys.filter((key) => key !== text).map((key) => element("kbd", {}, KEYS[key] ?? key));
  if (shown.length) button.append(element("span", { "aria-hidden": "true" }, ...shown));
  return button;
}

/** Estimate the width of a button in digits: most letters are narrower, keys have a frame. */
function lengthOf(button) {
  return 0.85 * button.dataset.name.length + 2.7 * button.querySelectorAll("kbd").length;
}

/** Keys act on the question of the focused card, or on the only one that takes them. */
export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input, textarea, select, dialog")) return;
    if ((key === "Enter" || key === " ") && target.closest("button, a, summary")) return;
    const button = buttonFor(key, target);
    if (button === null) return;
    // A greyed question takes its keys too, or arrows would scroll the page between two steps.
    event.preventDefault();
    button.click();
  });
}

function buttonFor(key, focused) {
  // The focused card keeps all keys from the others, even those it does not use.
  const places = focused.closest(".card")?.querySelector(".question") ? [".question", ".player", ".card"] : ["body"];
  for (const place of places) {
    const root = focused.closest(place);
    const forms = root?.matches(".question") ? [root] : [...(root?.querySelectorAll(".question") ?? [])];
    const able = forms.filter((form) => form.questionPanel.buttonOf(key));
    const asked = able.filter((form) => form.dataset.question !== undefined);
    const chosen = asked.length ? asked : able;
    if (chosen.length === 1) return chosen[0].questionPanel.buttonOf(key);
    // With several questions, the page does not guess which one is meant.
    if (chosen.length) return null;
  }
  return null;
}
