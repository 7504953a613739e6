// Text rendered for a terminal: colours are kept, all other escape sequences are removed.

import { element } from "./dom.js";

const SEQUENCE = /\u001b\[([0-9;]*)([A-Za-z])/;

/** Write text into a `pre`, or hide it if there is none. */
export function writeTerminalText(node, text) {
  const written = text ?? "";
  node.hidden = written === "";
  if (node.written === written) return;
  node.written = written;
  // Lines of a drawing stay as they are; a single one, such as a mission, is prose.
  node.classList.toggle("prose", !written.trim().includes("\n"));
  node.replaceChildren(...spansOf(written));
}

function spansOf(text) {
  // Text, parameters, letter; text, parameters, letter; ...; text
  const parts = text.split(SEQUENCE);
  const spans = [];
  let codes = [];
  for (let i = 0; i < parts.length; i += 3) {
    if (parts[i] !== "") {
      const names = codes.map((code) => `sgr-${code}`).join(" ");
      spans.push(codes.length ? element("span", { class: names }, parts[i]) : parts[i]);
    }
    if (parts[i + 2] === "m") codes = codesAfter(codes, parts[i + 1]);
  }
  return spans;
}

function codesAfter(codes, parameters) {
  for (const code of parameters.split(";").map(Number)) codes = code === 0 ? [] : [...codes, code];
  return codes;
}
