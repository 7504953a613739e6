// Runs before anything is drawn, so that a page in the dark never flashes white, and cards keep their places.
document.documentElement.dataset.theme = localStorage.getItem("parllel-theme") ?? "auto";
document.documentElement.dataset.density = localStorage.getItem("parllel-density") ?? "medium";
