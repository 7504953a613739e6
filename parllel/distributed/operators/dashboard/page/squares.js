// Squares over the picture of a board, by which a person chooses an action: one click, or from a square to another.
//
// The buttons below are the same choice: this is for pointers alone.

const SVG = "http://www.w3.org/2000/svg";

export class Squares {
  #layer = null;
  #place;
  #panel = null;
  #from = null; // the square that was clicked first
  #drawn = "";

  /** place: of the picture. */
  constructor(place) {
    this.#place = place;
  }

  /** Show the squares of a panel's question; null: there is none, or it is unclear which of several. */
  update(panel, canvas) {
    const board = panel?.question?.board ?? null;
    if (panel?.question?.number !== this.#panel?.number) this.#from = null;
    this.#panel = board === null ? null : { panel, number: panel.question.number };
    const size = canvas === null ? null : [canvas.width, canvas.height];
    const wanted = board === null || size === null ? "" : JSON.stringify([this.#panel.number, size, this.#from]);
    if (wanted === this.#drawn) return;
    this.#drawn = wanted;
    this.#layer?.remove();
    this.#layer = null;
    if (wanted === "") return;
    this.#layer = layer(board, size, this.#choices(board), this.#from);
    this.#layer.addEventListener("click", ({ target }) => {
      if (target.dataset.square !== undefined) this.#click(Number(target.dataset.square), canvas);
    });
    this.#place.append(this.#layer);
  }

  /** Return the squares that can be clicked: where actions start, and where they end. */
  #choices({ squares }) {
    const first = squares.map((one) => one[0]);
    const then = squares.filter((one) => one.length > 1 && one[0] === this.#from).map((one) => one[1]);
    return new Set([...first, ...then]);
  }

  #click(square, canvas) {
    const { panel } = this.#panel;
    const { actions, board } = panel.question;
    const path = this.#from === null ? [square] : [this.#from, square];
    const found = actions.filter((_, i) => board.squares[i].join() === path.join());
    if (found.length === 1) panel.choose(found[0].action);
    // A promotion, for example: the same squares stand for several actions.
    else if (found.length > 1) panel.narrow(found.map((one) => one.name));
    const begins = board.squares.some((one) => one.length > 1 && one[0] === square);
    this.#from = found.length === 0 && begins && square !== this.#from ? square : null;
    this.update(panel, canvas);
  }
}

function layer(board, [width, height], choices, from) {
  // Fitted into its place as the picture is.
  const made = shape("svg", { class: "squares", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const left = board.left * width;
  const [across, down] = [(width - 2 * left) / board.columns, height / board.rows];
  for (const square of choices) {
    const [x, y] = [left + (square % board.columns) * across, Math.floor(square / board.columns) * down];
    const kind = from === null ? "first" : square === from ? "from" : isTarget(board, from, square) ? "to" : "first";
    made.append(shape("rect", { class: kind, "data-square": square, x, y, width: across, height: down }));
  }
  return made;
}

function isTarget({ squares }, from, square) {
  return squares.some((one) => one[0] === from && one[1] === square);
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
