// Sets the theme before the first paint, so that no page flashes in the wrong colours.
(function () {
  "use strict";
  var kept = null;
  try { kept = localStorage.getItem("forge.theme"); } catch (_) { /* storage may be closed */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
