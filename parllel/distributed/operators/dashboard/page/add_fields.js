// Conversion of the dialog's fields to the body of a request.

const at = (id) => document.getElementById(id);

/** Thrown for an invalid field; its message says what was expected. */
export class FieldError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** Return the fields of an OperatorConfig. */
export function operatorBody(kinds) {
  const type = at("operator-type").value;
  const settings = jsonOf(at("settings"), "Settings");
  if (type === "llm") {
    Object.assign(settings, present({ model: at("model"), base_url: at("base-url"), api_key_env: at("api-key-env") }));
  }
  const body = {
    operator_type: type,
    operator_id: named(at("operator-id")),
    env_id: needed(at("env-id"), "Environment: expected the id of an environment, such as CartPole-v1."),
    settings,
    ...common(),
  };
  if (type === "program") body.worker = words(at("worker"));
  else if (isPolicyNeeded(kinds, type)) body.policy = policyOf(at("policy"));
  return body;
}

/** Return the fields of a MultiAgentConfig. */
export function gameBody(kinds) {
  const players = {};
  for (const row of at("rows").children) {
    const part = (name) => row.querySelector(`[name=player-${name}]`);
    const id = needed(part("id"), "Player: expected the game's name for the player, such as player_0.");
    if (id in players) throw new FieldError(part("id"), `Player ${id}: there are two players of this name.`);
    const type = part("type").value;
    players[id] = {
      operator_type: type,
      operator_id: named(part("operator")),
      settings: jsonOf(part("settings"), `Settings of ${id}`),
    };
    if (type === "program") players[id].worker = words(part("policy"));
    else if (isPolicyNeeded(kinds, type)) players[id].policy = policyOf(part("policy"));
  }
  return {
    operator_id: named(at("operator-id")),
    env_id: needed(at("env-id"), "Environment: expected the id of a game."),
    players,
    illegal: at("illegal").value,
    seats: at("seats").value,
    ...common(),
  };
}

function common() {
  const most = at("max-steps").value;
  return { env_kwargs: jsonOf(at("env-kwargs"), "Arguments"), max_steps: most === "" ? null : Number(most) };
}

function isPolicyNeeded(kinds, type) {
  return kinds.find((one) => one.kind === type)?.policy === "needed";
}

function policyOf(field) {
  return needed(field, "Policy: expected a policy.");
}

function needed(field, sentence) {
  const text = field.value.trim();
  if (text === "") throw new FieldError(field, sentence);
  return text;
}

function named(field) {
  if (!field.checkValidity()) {
    throw new FieldError(field, "Name: expected 1 to 64 letters, digits, dots, underscores and hyphens.");
  }
  return field.value;
}

function jsonOf(field, name) {
  const text = field.value.trim();
  if (text === "") return {};
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // The same sentence as for JSON of another type.
  }
  throw new FieldError(field, `${name}: expected a JSON object, such as {"map_name": "8x8"}.`);
}

function words(field) {
  const text = needed(field, "Command: expected a program and its arguments.");
  if (!text.startsWith("[")) return text.split(/\s+/);
  try {
    return JSON.parse(text);
  } catch {
    throw new FieldError(field, 'Command: expected words, or JSON such as ["python", "my worker.py"].');
  }
}

function present(fields) {
  const values = Object.entries(fields).map(([name, field]) => [name, field.value.trim()]);
  return Object.fromEntries(values.filter(([, value]) => value !== ""));
}
