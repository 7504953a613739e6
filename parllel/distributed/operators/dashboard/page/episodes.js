// The recorded episodes of an experiment: curves of their returns, and a table, each a link to its replay.

import { element } from "./dom.js";
import { LineChart } from "./line_chart.js";
import { get } from "./server.js";
import { numberText } from "./words.js";

const MAX_RECORDS = 5000; // fetched
const FIRST_ROWS = 12; // shown until one asks for all

/** Return the records of all episodes, or of the first thousands. */
export async function recordedEpisodes(run) {
  const found = [];
  for (let from = 0; from !== null && found.length < MAX_RECORDS; ) {
    const { episodes, next } = await get(`api/episodes?${new URLSearchParams({ run, from })}`);
    found.push(...episodes);
    from = next;
  }
  return found;
}

/** Return the curves of the returns over the episodes, or null if there are fewer than two. */
export function returnCurves(operators, episodes) {
  const lines = operators.map((name) => {
    const own = episodes.filter((one) => one.operator_id === name);
    return { name, points: own.map((one) => [one.episode, one.status === "ended" ? one.total_reward : null]) };
  });
  if (lines.every(({ points }) => points.length < 2)) return null;
  const caption = "Return by episode";
  const chart = new LineChart(caption, lines, "Episode");
  return element("figure", { class: "returns" }, element("figcaption", {}, caption), chart.node);
}

/** Return a table with a row for each episode and a column for each operator. */
export function episodesTable(run, operators, episodes) {
  const byNumber = new Map();
  for (const one of episodes) byNumber.set(one.episode, [...(byNumber.get(one.episode) ?? []), one]);
  const rows = [...byNumber].map(([number, ofNumber], i) =>
    element(
      "tr",
      { "data-episode": number, hidden: i >= FIRST_ROWS },
      element("th", { scope: "row" }, String(number)),
      element("td", {}, numberText(ofNumber[0].seed)),
      ...operators.map((name) => element("td", {}, cell(run, ofNumber.find((one) => one.operator_id === name)))),
    ),
  );
  const heads = ["Episode", "Seed", ...operators].map((head) => element("th", { scope: "col" }, head));
  const table = element(
    "table",
    { class: "episodes" },
    element("caption", {}, "Episodes: return. Choose one to replay it"),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows),
  );
  if (rows.length <= FIRST_ROWS) return [table];
  const all = element("button", { type: "button", class: "all" }, `Show all ${rows.length} episodes`);
  all.addEventListener("click", () => {
    for (const row of rows) row.hidden = false;
    all.remove();
  });
  return [table, all];
}

/** Return the address of a replay; parts: run, operator, episode, and a step or none. */
export function replayAddress(...parts) {
  return `#replay=${parts.map(encodeURIComponent).join("/")}`;
}

function cell(run, episode) {
  if (episode === undefined) return "–";
  const isFailed = episode.status === "failed";
  const attributes = { href: replayAddress(run, episode.operator, episode.episode), class: isFailed ? "failed" : null, title: episode.failure ?? null };
  return element("a", attributes, episode.status === "ended" ? numberText(episode.total_reward) : episode.status);
}
