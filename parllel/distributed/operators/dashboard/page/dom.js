// DOM helpers. What agents and servers send is only ever inserted as text.

/** Return a new element with attributes (true: without a value; false, null: left out) and children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Return a copy of a template's elements. */
export function copyOf(id) {
  return document.getElementById(id).content.cloneNode(true);
}

/** Set text, an attribute or visibility only if it changed: most of a snapshot stays the same. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setData(node, name, value) {
  if (value === null) delete node.dataset[name];
  else if (node.dataset[name] !== String(value)) node.dataset[name] = value;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/** The elements with a `data-field` of one part of the page, by name. */
export class Fields {
  #nodes = new Map();

  constructor(root) {
    for (const node of root.querySelectorAll("[data-field]")) this.#nodes.set(node.dataset.field, node);
  }

  node(name) {
    return this.#nodes.get(name);
  }

  write(values) {
    for (const [name, text] of Object.entries(values)) setText(this.#nodes.get(name), text);
  }

  /** Show a short text, and the full one as a tooltip. */
  writeShort(name, short, whole) {
    setText(this.#nodes.get(name), short);
    this.#nodes.get(name).title = short === whole ? "" : whole;
  }

  /** Show a text, or hide its element if there is none. */
  writeOrHide(name, text) {
    setText(this.#nodes.get(name), text ?? "");
    show(this.#nodes.get(name), Boolean(text));
  }
}

/** Make `nodes` the children of `parent`. Nodes already in place are not moved, which would lose focus. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, i) => {
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
  });
}

/** Remember across reloads whether a `details` is open. */
export function rememberOpen(details, name) {
  const key = `parllel-open:${name}`;
  details.open = localStorage.getItem(key) !== null;
  details.addEventListener("toggle", () => {
    if (details.open) localStorage.setItem(key, "");
    else localStorage.removeItem(key);
  });
}
