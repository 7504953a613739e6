// Runs before anything is drawn, so that a page in the dark never flashes white.
document.documentElement.dataset.theme = localStorage.getItem("parllel-theme") ?? "auto";
