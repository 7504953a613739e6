// Pictures, from the WebSocket to the canvas of their card.
//
//   server --(card, number, PNG)--> receive --> newest of each card --> one animation frame: decode, draw --> "seen"
//
// The server sends a card's next picture only after "seen", so a slow page gets fewer pictures, not older ones.

const PIXELATED_BELOW = 200; // pixels; a picture this small is drawn large, and smoothing would blur it

export class Frames {
  #waiting = new Map();
  #decoding = new Set();
  #isPlanned = false;
  #canvasOf;
  #seen;

  /** canvasOf: returns the canvas of a card, or null if the card is gone; seen: called with what was drawn. */
  constructor(canvasOf, seen) {
    this.#canvasOf = canvasOf;
    this.#seen = seen;
  }

  receive(buffer) {
    const length = new DataView(buffer).getUint32(0);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    this.#waiting.set(header.card, { ...header, png: new Blob([new Uint8Array(buffer, 4 + length)]) });
    this.#plan();
  }

  #plan() {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    requestAnimationFrame(() => {
      this.#isPlanned = false;
      for (const [card, frame] of this.#waiting) {
        // Two pictures of one card could be decoded out of order.
        if (this.#decoding.has(card)) continue;
        this.#waiting.delete(card);
        this.#draw(frame);
      }
    });
  }

  async #draw({ card, number, episode, step, png }) {
    this.#decoding.add(card);
    try {
      const picture = await createImageBitmap(png, { colorSpaceConversion: "none" });
      const canvas = this.#canvasOf(card);
      if (canvas) paint(canvas, picture, { number, episode, step });
      picture.close();
    } catch (error) {
      console.warn(`frame ${number} of ${card}: ${error.message}`);
    }
    this.#decoding.delete(card);
    this.#seen(card, number);
    if (this.#waiting.has(card)) this.#plan();
  }
}

function paint(canvas, picture, header) {
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width;
    canvas.height = picture.height;
    canvas.classList.toggle("small", Math.max(picture.width, picture.height) < PIXELATED_BELOW);
  }
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0);
  Object.assign(canvas.dataset, header);
}

/** Tracks which cards are on the screen: the server requests pictures only for these. */
export class VisibleCards {
  #onScreen = new Set();
  #said = null;
  #say;
  #observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.#onScreen.add(target.dataset.card);
        else this.#onScreen.delete(target.dataset.card);
      }
      this.tell();
    },
    { rootMargin: "100px" },
  );

  /** say: called with the ids of the visible cards. */
  constructor(say) {
    this.#say = say;
    document.addEventListener("visibilitychange", () => this.tell());
  }

  add(node) {
    this.#observer.observe(node);
  }

  remove(node) {
    this.#observer.unobserve(node);
    this.#onScreen.delete(node.dataset.card);
    this.tell();
  }

  /** Send which cards are visible, if that changed or the connection is new. */
  tell(isNew = false) {
    const cards = document.visibilityState === "visible" ? [...this.#onScreen].sort() : [];
    const said = JSON.stringify(cards);
    if (!isNew && said === this.#said) return;
    this.#said = said;
    this.#say(cards);
  }
}
