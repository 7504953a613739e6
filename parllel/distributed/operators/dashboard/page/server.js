// Communication with the server: commands by REST, states and frames by one WebSocket.

const ANSWER_S = 15;
const MAX_PAUSE_S = 2;
// The server sends something every three seconds. If it is silent for longer, it or the network is down.
const MAX_SILENCE_S = 9;

/** Thrown if the server refuses a request or cannot be reached; its message is one sentence for people. */
export class RefusedError extends Error {
  /** status: the HTTP status; null without a reply. */
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

export const get = (path) => ask(path, { method: "GET" });

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

export const getBlob = (path) => ask(path, { method: "GET" }, (reply) => reply.blob());

async function ask(path, request, read = (reply) => reply.json().catch(() => ({}))) {
  let reply;
  try {
    reply = await fetch(path, { ...request, signal: AbortSignal.timeout(ANSWER_S * 1000) });
  } catch {
    throw new RefusedError("The server does not answer. Is `parllel operators dashboard` still running?");
  }
  if (reply.ok) return read(reply);
  const answer = await reply.json().catch(() => ({}));
  throw new RefusedError(
    reply.status === 401
      ? "This browser is not signed in: open the address with its token that the command printed."
      : (answer.error ?? `The server refused this, with status ${reply.status}.`),
    reply.status,
  );
}

/** The WebSocket, reopened for as long as the page is open. */
export class Connection {
  #socket = null;
  #isFirst = true; // whether this socket has not received anything yet
  #heard_ms = 0;
  #pause_s = 0;
  #handlers;

  /** handlers: `state(snapshot, isFirst)`, `frame(buffer)`, `changed("connected", "reconnecting")`, `refused(error)`. */
  constructor(handlers) {
    this.#handlers = handlers;
    this.#open();
    setInterval(() => this.#listen(), 1000);
    // The event may concern another network than the server's: 127.0.0.1 is always reachable.
    window.addEventListener("offline", () => get("api/state").catch(() => this.#lost()));
  }

  /** Send a message. Without a connection it is dropped: everything is sent again after the next `state`. */
  send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #open() {
    const address = new URL("api/ws", document.baseURI);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    this.#socket = socket;
    this.#isFirst = true;
    this.#heard_ms = Date.now();
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) => socket === this.#socket && this.#take(data));
    socket.addEventListener("close", () => socket === this.#socket && this.#lost());
  }

  #take(data) {
    this.#heard_ms = Date.now();
    if (typeof data !== "string") return this.#handlers.frame(data);
    const message = JSON.parse(data);
    if (message.type !== "state") return;
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    this.#pause_s = 0;
    if (isFirst) this.#handlers.changed("connected");
    this.#handlers.state(message, isFirst);
  }

  #listen() {
    if (this.#socket !== null && Date.now() - this.#heard_ms > 1000 * MAX_SILENCE_S) this.#lost();
  }

  #lost() {
    // Does not wait for the closing handshake, which nobody may answer.
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.close();
    this.#handlers.changed("reconnecting");
    this.#pause_s = Math.min(MAX_PAUSE_S, Math.max(0.1, 2 * this.#pause_s));
    setTimeout(() => this.#open(), 1000 * this.#pause_s);
    // Browsers hide why a WebSocket was refused; REST tells.
    if (this.#isFirst) get("api/state").catch((error) => this.#handlers.refused(error));
  }
}
