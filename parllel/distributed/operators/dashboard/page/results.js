// Results: the list of experiments, and the results of one of them.

import { intervalChart } from "./chart.js";
import { element, setData } from "./dom.js";
import { episodesTable, recordedEpisodes, returnCurves } from "./episodes.js";
import { RefusedError, get } from "./server.js";
import { numberText, secondsText } from "./words.js";

const NONE = "There are none yet: what is played on the board, or by `parllel operators run`, is listed here.";
const AGAIN_MS = 3000; // between updates of the results of a running experiment

export class ResultsView {
  #list = document.getElementById("experiments-list");
  #detail = document.getElementById("results-detail");
  #run = null;
  #shown = null;
  #say;

  /** say: shows the sentence of an error; null clears it. */
  constructor(say) {
    this.#say = say;
    setInterval(() => {
      const isSeen = document.visibilityState === "visible" && this.#detail.checkVisibility();
      if (isSeen && this.#shown?.state === "running") this.#ask();
    }, AGAIN_MS);
  }

  /** Show the list and the results of `run`: a name in the list, or a folder; null: the newest. */
  async open(run) {
    this.#run = run;
    this.#shown = null;
    await this.#ask();
  }

  async #ask() {
    const run = this.#run;
    try {
      const { experiments } = await get("api/experiments");
      const chosen = run === null ? experiments[0]?.run : (experiments.find((one) => one.folder === run)?.run ?? run);
      const found = chosen === undefined ? null : await get(`api/results?run=${encodeURIComponent(chosen)}`);
      // Redrawn only if it changed, because that resets focus and scrolling.
      const isSame = found !== null && JSON.stringify(found) === JSON.stringify(this.#shown);
      const episodes = found === null || isSame ? [] : await recordedEpisodes(chosen);
      // Another experiment may have been chosen meanwhile.
      if (run === this.#run && !isSame) this.#show(experiments, found, episodes);
      this.#say(null);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      this.#say(error.message);
    }
  }

  #show(experiments, found, episodes) {
    this.#shown = found;
    this.#list.replaceChildren(...experiments.map((one) => listed(one, one.run === found?.run)));
    setData(this.#detail, "run", found?.run ?? null);
    this.#detail.replaceChildren(...(found === null ? [element("p", { class: "muted" }, NONE)] : detail(found, episodes)));
  }
}

function detail({ run, name, state, groups }, episodes) {
  const said = element("span", { class: "muted" }, state ?? "");
  const header = element("header", { class: "line" }, element("h2", {}, name), said);
  if (groups.length) return [header, ...groups.map((group) => groupSection(run, group, episodes))];
  return [header, element("p", { class: "muted" }, "No episode has been played yet.")];
}

function listed({ run, name, time, state, operators }, isChosen) {
  const when = new Date(1000 * time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const link = element(
    "a",
    { href: `#results=${encodeURIComponent(run)}`, "data-run": run, "aria-current": isChosen ? "true" : null },
    element("b", {}, name === run ? name : `${name} (${run})`),
    element("span", { class: "muted" }, `${when} · ${state}`),
    element("span", { class: "muted" }, operators.join(", ")),
  );
  return element("li", {}, link);
}

function groupSection(run, group, episodes) {
  const { operators, differences, sentences } = group;
  const section = element("section", { "data-group": group.group }, element("h3", {}, group.label));
  const said = sentences.map((text) => element("li", {}, text));
  if (said.length) section.append(element("ul", { class: "sentences" }, ...said));
  const rewards = operators.map((one) => ({ name: failedName(one), ...one.total_reward }));
  const paired = differences.map((one) => ({ name: differenceName(one), isClear: one.is_clear, ...one.total_reward }));
  const charts = element("div", { class: "charts" });
  if (isChartable(rewards)) charts.append(figure("Return: mean and 95 % interval", rewards, false));
  if (isChartable(paired)) charts.append(figure(`Difference of return over pairs: ${levelText(differences)}`, paired, true));
  if (charts.children.length) section.append(charts);
  section.append(scrolled(meansTable(operators)));
  if (differences.length) section.append(scrolled(differencesTable(differences)));
  const own = episodes.filter((one) => one.group === group.group);
  if (own.length) {
    const names = operators.map((one) => one.operator_id);
    const [list, ...more] = episodesTable(run, names, own);
    section.append(...[returnCurves(names, own)].filter(Boolean), scrolled(list), ...more);
  }
  return section;
}

/** Return whether there is more to see than one dot. */
function isChartable(rows) {
  return rows.some((row) => row.low !== null) || rows.filter((row) => row.mean !== null).length > 1;
}

function figure(caption, rows, hasZero) {
  return element("figure", {}, element("figcaption", {}, caption), intervalChart(caption, rows, hasZero));
}

function scrolled(table) {
  const label = table.caption.textContent;
  return element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": label }, table);
}

function meansTable(operators) {
  // Empty columns are left out.
  const columns = [
    ["Episodes", (one) => `${one.ended} of ${one.asked}`],
    ["Failed", (one) => String(one.failed), operators.some((one) => one.failed)],
    ["Return", (one) => intervalText(one.total_reward)],
    ["Length", (one) => intervalText(one.length)],
    ["Success", (one) => percentText(one.success), operators.some((one) => one.success)],
    ["Understood", (one) => shareText(one.understood), operators.some((one) => one.decisions)],
    ["Tokens", (one) => intervalText(one.tokens), operators.some((one) => one.tokens)],
    ["Tokens in all", (one) => numberText(one.total_tokens), operators.some((one) => one.tokens)],
    ["Cost", (one) => intervalText(one.cost), operators.some((one) => one.cost)],
    ["Cost in all", (one) => numberText(one.total_cost), operators.some((one) => one.cost)],
    ["Median time of a step", (one) => secondsText(one.latency_s?.median)],
    ["95 % within", (one) => secondsText(one.latency_s?.p95)],
  ].filter(([, , isShown]) => isShown !== false);
  const rows = operators.map((one) =>
    element(
      "tr",
      { "data-operator": one.operator_id },
      element("th", { scope: "row" }, one.operator_id),
      ...columns.map(([, text]) => element("td", {}, text(one))),
    ),
  );
  return table("means", "Means and 95 % intervals", ["Operator", ...columns.map(([name]) => name)], rows);
}

function differencesTable(differences) {
  const rows = differences.map((one) =>
    element(
      "tr",
      { "data-difference": differenceName(one), "data-clear": String(one.is_clear) },
      element("th", { scope: "row" }, differenceName(one)),
      element("td", {}, String(one.total_reward.n)),
      element("td", {}, String(one.failed)),
      element("td", {}, String(one.unpaired)),
      element("td", {}, intervalText(one.total_reward)),
      element("td", {}, one.is_clear ? element("span", { class: "clear" }, "clear") : "not clear"),
    ),
  );
  const caption = `Differences of return, ${levelText(differences)}`;
  return table("differences", caption, ["Difference", "Pairs", "Failed", "Unpaired", "Return", ""], rows);
}

function table(name, caption, heads, rows) {
  return element(
    "table",
    { class: name },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows),
  );
}

function failedName({ operator_id, failed }) {
  return failed ? `${operator_id} (${failed} failed)` : operator_id;
}

function levelText([{ comparisons }]) {
  return comparisons > 1 ? `95 % intervals, corrected for ${comparisons} comparisons` : "mean and 95 % interval";
}

function differenceName({ operator_id, against }) {
  return `${operator_id} - ${against}`;
}

function intervalText(mean) {
  if (!mean || mean.mean === null) return "–";
  if (mean.low === null || mean.high === null) return numberText(mean.mean);
  return `${numberText(mean.mean)} [${numberText(mean.low)}, ${numberText(mean.high)}]`;
}

function shareText(share) {
  return share === null ? "–" : `${numberText(100 * share)} %`;
}

function percentText(mean) {
  if (!mean) return "–";
  const percent = (value) => Math.round(100 * (value ?? 0));
  return `${percent(mean.mean)} % [${percent(mean.low)}, ${percent(mean.high)}]`;
}
