// The page. All state is the server's: this shows its snapshots and sends requests.

import { AddDialog } from "./add_dialog.js";
import { Bar } from "./bar.js";
import { Card } from "./card.js";
import { arrange, setData, setText, show } from "./dom.js";
import { ExperimentPanel } from "./experiment.js";
import { Frames, VisibleCards } from "./frames.js";
import { densityChoice, themeButton } from "./looks.js";
import { listenToKeys } from "./questions.js";
import { ReplayView } from "./replay.js";
import { ResultsView } from "./results.js";
import { Connection, RefusedError, post } from "./server.js";

const TICK_MS = 250; // between updates of a status's elapsed seconds
const CONNECTION = { connected: "Connected", reconnecting: "Reconnecting" };

const at = (id) => document.getElementById(id);
const cards = new Map();
let state = null;
let isOnline = false;

const looking = new VisibleCards((ids) => connection.send({ type: "look", cards: ids }));
const frames = new Frames(
  (id) => cards.get(id)?.canvas() ?? null,
  (card, number) => connection.send({ type: "seen", card, number }),
);
const bar = new Bar(request);
const experiment = new ExperimentPanel(request);
const dialog = new AddDialog(apply);
const results = new ResultsView(say);
const replay = new ReplayView(say);
const connection = new Connection({
  state(snapshot, isFirst) {
    // A restarted server counts its versions from the beginning.
    if (isFirst) state = null;
    apply(snapshot);
    if (isFirst) looking.tell(true);
  },
  frame: (buffer) => frames.receive(buffer),
  changed(word) {
    isOnline = word === "connected";
    setData(document.documentElement, "connection", word);
    for (const card of cards.values()) card.connected(isOnline, state.phase);
    if (state !== null) bar.update(state, isOnline);
    setData(at("connection"), "state", word);
    setText(at("connection"), CONNECTION[word]);
    if (word === "connected") say(null);
  },
  // A missing connection is reported by `changed`.
  refused: (error) => error.status !== null && say(error.message),
});

/** Send a request and show the result. With `isThrown`, a refusal is left to the caller to show. */
async function request(path, body, isThrown = false) {
  try {
    apply(await post(path, body));
    say(null);
  } catch (error) {
    if (isThrown || !(error instanceof RefusedError)) throw error;
    say(error.message);
  }
}

function say(sentence) {
  setText(at("error-text"), sentence ?? "");
  show(at("error"), sentence !== null);
}

function apply(snapshot) {
  // The reply to a request and the WebSocket may overtake each other.
  if (state !== null && snapshot.version < state.version) return;
  state = snapshot;
  bar.update(state, isOnline);
  experiment.update(state);
  dialog.update(state);
  const known = new Set(state.cards.map((card) => card.id));
  for (const [id, card] of cards) {
    if (known.has(id)) continue;
    cards.delete(id);
    card.node.remove();
    looking.remove(card.node);
  }
  for (const one of state.cards) {
    if (!cards.has(one.id)) {
      cards.set(one.id, new Card(one.id, request));
      looking.add(cards.get(one.id).node);
    }
    cards.get(one.id).update(one, state);
  }
  arrange(at("cards"), state.cards.map((card) => cards.get(card.id).node));
  show(at("empty"), state.cards.length === 0 && state.experiment === null);
}

function showView() {
  const [view, rest = null] = location.hash.slice(1).split("=");
  const isBoard = view !== "results" && view !== "replay";
  const isReplay = view === "replay" && rest !== null;
  show(at("view-board"), isBoard);
  show(at("view-results"), !isBoard && !isReplay);
  show(at("view-replay"), isReplay);
  for (const [id, isCurrent] of [["tab-board", isBoard], ["tab-results", !isBoard]]) {
    if (isCurrent) at(id).setAttribute("aria-current", "page");
    else at(id).removeAttribute("aria-current");
  }
  if (isReplay) return replay.open(rest.split("/").map(decoded));
  replay.close();
  if (!isBoard) results.open(rest === null ? null : decoded(rest));
}

/** Return a part of the address, or as it is if nobody could have encoded it. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function closeMenus(except) {
  for (const menu of document.querySelectorAll(".menu[open]")) if (menu !== except) menu.open = false;
}

at("error-close").addEventListener("click", () => say(null));
at("add").addEventListener("click", () => dialog.open());
document.addEventListener("click", ({ target }) => closeMenus(target.closest(".menu")));
document.addEventListener("keydown", ({ key }) => key === "Escape" && closeMenus(null));
window.addEventListener("hashchange", showView);
setInterval(() => {
  for (const card of cards.values()) card.tick(state.phase);
}, TICK_MS);
themeButton(at("theme"));
densityChoice(at("density"));
listenToKeys();
showView();
