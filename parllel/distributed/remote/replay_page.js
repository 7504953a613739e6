
"use strict";
// Text from agents is always set as textContent, never parsed as HTML.
const episode = JSON.parse(document.getElementById("episode").textContent);
const part = (id) => document.getElementById(id);
const last = episode.steps.length - 1;
let now = 0;
let timer = null;

function element(kind, text, name) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

function number(value, digits) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  return String(Number(value.toFixed(digits)));
}

function showPicture() {
  const picture = episode.pictures[episode.picture_of[now]];
  part("picture").hidden = picture === undefined;
  if (picture !== undefined && part("picture").src !== picture) part("picture").src = picture;
  const text = episode.texts[now];
  part("text").hidden = picture !== undefined || text === undefined;
  part("text").textContent = text === undefined ? "" : text;
}

function showAgents() {
  const logs = episode.logs[now] || [];
  const rows = [];
  const printed = [];
  episode.steps[now].forEach((state, seat) => {
    const log = logs[seat] || {};
    const row = element("tr", "");
    row.append(element("td", episode.agents[seat]));
    const status = element("td", "");
    status.append(element("span", state.status, state.status));
    if (state.reason) status.append(element("div", state.reason, "reason"));
    row.append(status, element("td", number(state.reward, 4)));
    // Inactive agents have an action too: the default of the schema, which they did not choose.
    const acted = now && episode.steps[now - 1][seat].status === "ACTIVE";
    row.append(element("td", acted ? JSON.stringify(state.action) : "–"));
    row.append(element("td", "duration" in log ? number(1000 * log.duration, 1) + " ms" : "–"));
    row.append(element("td", state.left_s === null ? "–" : number(state.left_s, 1) + " s"));
    rows.push(row);
    for (const stream of ["stdout", "stderr"]) {
      if (!log[stream]) continue;
      printed.push(element("h2", episode.agents[seat] + ", " + stream), element("pre", log[stream]));
    }
  });
  part("agents").replaceChildren(...rows);
  part("logs").replaceChildren(...printed);
}

function show(step) {
  now = Math.max(0, Math.min(last, step));
  part("slider").value = now;
  part("step").textContent = now + " / " + last;
  showPicture();
  showAgents();
}

function pause() {
  clearInterval(timer);
  timer = null;
  part("play").textContent = "Play";
}

function play() {
  if (now === last) show(0);
  part("play").textContent = "Pause";
  timer = setInterval(() => {
    show(now + 1);
    if (now === last) pause();
  }, 1000 / Number(part("speed").value));
}

function go(step) {
  pause();
  show(step);
}

const toggle = () => (timer === null ? play() : pause());
part("title").textContent = episode.title;
part("about").textContent = episode.about;
part("slider").max = last;
part("speed").value = episode.speed;
part("play").onclick = toggle;
part("first").onclick = () => go(0);
part("back").onclick = () => go(now - 1);
part("forward").onclick = () => go(now + 1);
part("last").onclick = () => go(last);
part("slider").oninput = () => go(Number(part("slider").value));
part("speed").onchange = () => {
  if (timer !== null) {
    pause();
    play();
  }
};
document.addEventListener("keydown", (event) => {
  if (["SELECT", "INPUT", "BUTTON"].includes(event.target.tagName) && event.key === " ") return;
  if (event.target.tagName === "INPUT" || event.target.tagName === "SELECT") return;
  const keys = {
    " ": toggle,
    ArrowLeft: () => go(now - 1),
    ArrowRight: () => go(now + 1),
    Home: () => go(0),
    End: () => go(last),
  };
  if (event.key in keys) {
    event.preventDefault();
    keys[event.key]();
  }
});
// page.html#12 starts at step 12.
const named = () => go(Number(location.hash.slice(1)) || 0);
window.addEventListener("hashchange", named);
named();
