// Formatting of values for people.

const SOON_S = 0.5; // a shorter step does not change the shown status
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

/** Format a number with four significant digits, but all integer digits; null is a dash. */
export function numberText(value) {
  if (value === null || value === undefined) return "–";
  return String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4)));
}

/** Format a JSON value as one line. */
export function valueText(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Shorten a long path to its last two parts. */
export function shortName(name) {
  const parts = name.split("/");
  return parts.length <= MAX_PARTS || name.includes("://") ? name : `…/${parts.slice(-2).join("/")}`;
}

export function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const [number, unit] = seconds < 1 ? [1000 * seconds, "ms"] : [seconds, "s"];
  return `${numberText(Math.round(10 * number) / 10)} ${unit}`;
}

/** Return the status to show after `before`. Brief steps all look the same, so that nothing flickers. */
export function shownStatus(card, phase, before) {
  const isBrief = elapsed(card) < SOON_S;
  if (card.status === "thinking" && isBrief) return before === "waiting" ? before : still(phase);
  return card.status === "ready" && isBrief ? still(phase) : card.status;
}

/** Return whether nothing has happened long enough for a picture to have arrived. */
export function isAtRest(card) {
  return elapsed(card) >= SOON_S;
}

/** Return a status of `shownStatus` in words, with the seconds of a slow step. */
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
