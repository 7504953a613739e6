// Runs before anything is drawn, so that a dark page never flashes white, and cards keep their size.
document.documentElement.dataset.theme = localStorage.getItem("parllel-theme") ?? "auto";
document.documentElement.dataset.density = localStorage.getItem("parllel-density") ?? "medium";
