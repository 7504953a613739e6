// How values are written for people.

const SOON_S = 0.5; // a step that takes less is not worth a change of words
const MAX_PARTS = 3;
const STATUS = {
  new: "Not started",
  starting: "Starting",
  ready: "Ready",
  playing: "Playing",
  thinking: "Thinking",
  waiting: "Waiting for you",
  ended: "Episode over",
  failed: "Failed",
  died: "Died",
  offline: "Offline",
};

/** Return a number with at most four significant digits, all of those before the point, or a dash for null. */
export function numberText(value) {
  if (value === null || value === undefined) return "–";
  return String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4)));
}

/** Return a JSON value as one line. */
export function valueText(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return a name with no more than the last two parts of a long path. */
export function shortName(name) {
  const parts = name.split("/");
  return parts.length <= MAX_PARTS || name.includes("://") ? name : `…/${parts.slice(-2).join("/")}`;
}

export function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const [number, unit] = seconds < 1 ? [1000 * seconds, "ms"] : [seconds, "s"];
  return `${numberText(Math.round(10 * number) / 10)} ${unit}`;
}

/** Return which status to show after `before`: brief steps all look the same, so that nothing flickers. */
export function shownStatus(card, phase, before) {
  const isBrief = elapsed(card) < SOON_S;
  if (card.status === "thinking" && isBrief) return before === "waiting" ? before : still(phase);
  return card.status === "ready" && isBrief ? still(phase) : card.status;
}

/** Return whether nothing has happened for a moment, so that a picture of it would have come. */
export function isAtRest(card) {
  return elapsed(card) >= SOON_S;
}

/** Return a status of `shownStatus` in words, with the seconds of a slow one. */
export function statusText(card, shown) {
  const seconds = Math.floor(elapsed(card));
  const isSlow = (shown === "thinking" || shown === "starting") && seconds >= 1;
  return isSlow ? `${statusName(shown)}, ${seconds} s` : statusName(shown);
}

export function statusName(status) {
  return STATUS[status] ?? status;
}

function still(phase) {
  return phase === "playing" ? "playing" : "ready";
}

function elapsed(card) {
  return Math.max(0, Date.now() / 1000 - card.since);
}
