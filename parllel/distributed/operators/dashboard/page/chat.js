// What a language model was asked in one decision, and its answers, as a conversation.

import { element } from "./dom.js";
import { numberText, valueText } from "./words.js";

const CUT = new Set(["length", "max_tokens", "MAX_TOKENS"]);

/** Return whether a record of telemetry has anything of a conversation. */
export function hasChat({ prompts, answers, tokens, calls }) {
  return (prompts ?? answers ?? tokens ?? calls ?? null) !== null;
}

/** Return the messages of a record as list items. Old records have no prompts, or only the text of the answers. */
export function chatItems(record) {
  const { prompts, answers, raw } = record;
  const said = answers ?? (typeof raw === "string" ? [{ content: raw }] : []);
  const asked = (prompts ?? []).filter((one) => one.role !== "system");
  const items = (prompts ?? []).filter((one) => one.role === "system").map(({ content }) => instructions(content));
  for (let i = 0; i < Math.max(asked.length, said.length); i++) {
    if (i < asked.length) items.push(item(i === 0 ? "Prompt" : "Follow-up", asked[i].role, text(asked[i].content)));
    if (i < said.length) items.push(answer(said[i], i === said.length - 1 ? outcome(record) : []));
  }
  return items;
}

function answer(message, verdict) {
  const { content, finish_reason: reason, ...rest } = message;
  const shown = textOf(content);
  const parts = [shown === "" ? element("p", { class: "muted" }, "(no text)") : text(shown)];
  const others = typeof content === "string" || content === undefined ? rest : { content, ...rest };
  if (Object.keys(others).length) parts.push(folded("As sent", JSON.stringify(others, null, 2)));
  const cut = CUT.has(reason) ? [element("span", { class: "illegal" }, "cut at the limit of tokens")] : [];
  return item("Answer", "assistant", ...parts, ...verdict, ...cut);
}

/** Return what became of the last answer. */
function outcome({ understood, parsed, executed, action }) {
  if (understood === undefined || understood === null) return [];
  const played = element("code", {}, valueText(executed ?? action));
  if (!understood) return [element("p", {}, element("span", { class: "illegal" }, "not understood"), " Played instead: ", played)];
  return [element("p", { class: "muted" }, "Understood: ", element("code", {}, valueText(parsed)), " Played: ", played)];
}

function instructions(content) {
  return item("Instructions", "system", folded(`${numberText(content.length)} characters`, content));
}

function item(name, role, ...content) {
  return element("li", { "data-role": role }, element("span", { class: "who" }, name), ...content);
}

function text(content) {
  return element("pre", {}, content);
}

function folded(summary, content) {
  return element("details", {}, element("summary", {}, summary), text(content));
}

/** Return the text of an answer, which some servers send as a list of parts. */
function textOf(content) {
  if (!Array.isArray(content)) return content ?? "";
  const isText = (part) => typeof part.text === "string" && !part.thought && (part.type ?? "text") === "text";
  return content.filter(isText).map((part) => part.text).join("");
}
