// Appearance: light, dark, or the system's choice; and the width of cards.

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

export function themeButton(button) {
  const root = document.documentElement;
  const showIt = () => {
    const theme = root.dataset.theme;
    button.querySelector("use").setAttribute("href", `#icon-theme-${theme}`);
    button.title = `Colours: ${NAMES[theme]}`;
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}. Change to: ${NAMES[NEXT[theme]]}`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = NEXT[root.dataset.theme] ?? "auto";
    localStorage.setItem("parllel-theme", root.dataset.theme);
    showIt();
  });
  showIt();
}

export function densityChoice(select) {
  const root = document.documentElement;
  select.value = root.dataset.density;
  select.addEventListener("change", () => {
    root.dataset.density = select.value;
    localStorage.setItem("parllel-density", select.value);
  });
}
