// What goes to the server and comes back: commands by REST, states and frames by one WebSocket.

const ANSWER_S = 15;
const MAX_PAUSE_S = 2;
// The server says something every three seconds; one that is silent has stopped, or the network between.
const MAX_SILENCE_S = 9;

/** A request that the server refused, or did not hear; its message is one sentence for people. */
export class RefusedError extends Error {
  /** status: of HTTP; null if there was no answer. */
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

export const get = (path) => ask(path, { method: "GET" });

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

async function ask(path, request) {
  let reply;
  try {
    reply = await fetch(path, { ...request, signal: AbortSignal.timeout(ANSWER_S * 1000) });
  } catch {
    throw new RefusedError("The server does not answer. Is `parllel operators dashboard` still running?");
  }
  const answer = await reply.json().catch(() => ({}));
  if (reply.ok) return answer;
  throw new RefusedError(
    reply.status === 401
      ? "This browser is not signed in: open the address with its token that the command printed."
      : (answer.error ?? `The server refused this, with status ${reply.status}.`),
    reply.status,
  );
}

/** The WebSocket, opened again for as long as the page is open. */
export class Connection {
  #socket = null;
  #isFirst = true; // whether nothing came by this socket yet
  #heard_ms = 0;
  #pause_s = 0;
  #handlers;

  /** handlers: `state(snapshot, isFirst)`, `frame(buffer)`, `changed("connected", "reconnecting")`, `refused(error)`. */
  constructor(handlers) {
    this.#handlers = handlers;
    this.#open();
    setInterval(() => this.#listen(), 1000);
    // It may concern another network than the server's: 127.0.0.1 is always there.
    window.addEventListener("offline", () => get("api/state").catch(() => this.#lost()));
  }

  /** Send a message; without a connection it is dropped, as all of it is said again after the next `state`. */
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
    // Its closing handshake is not waited for: nobody may answer it.
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.close();
    this.#handlers.changed("reconnecting");
    this.#pause_s = Math.min(MAX_PAUSE_S, Math.max(0.1, 2 * this.#pause_s));
    setTimeout(() => this.#open(), 1000 * this.#pause_s);
    // A browser keeps from the page why a WebSocket was refused; REST says it.
    if (this.#isFirst) get("api/state").catch((error) => this.#handlers.refused(error));
  }
}
