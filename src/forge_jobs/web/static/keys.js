// Keyboard shortcuts and the command palette.
(function () {
  "use strict";

  var $ = window.forge.$, all = window.forge.all, afterG = false, known = [];
  var ACTS = { r: "retry", n: "run-now", c: "cancel", d: "delete" };

  // ---------------------------------------------------------------- palette

  function root() { return $(".brand").getAttribute("href").replace(/\/$/, ""); }

  // names of queues and kinds, fetched once when the palette is first opened
  function fetchNames() {
    if (known.length) return;
    Promise.all(["/api/queue/overview", "/api/jobs/kinds"].map(function (path) {
      return fetch(root() + path).then(function (response) { return response.ok ? response.json() : []; }).catch(function () { return []; });
    })).then(function (lists) {
      lists[0].forEach(function (queue) {
        known.push({ text: "Queue " + queue.name, href: root() + "/queues#q-" + encodeURIComponent(queue.name) });
        known.push({ text: "Charts of queue " + queue.name, href: root() + "/?queue=" + encodeURIComponent(queue.name) });
      });
      lists[1].forEach(function (kind) { known.push({ text: "Jobs of kind " + kind, href: root() + "/jobs?kind=" + encodeURIComponent(kind) }); });
      if ($("#palette").open) fill();
    });
  }

  function matches(text) {
    var wanted = text.trim().toLowerCase(), found = all(".side .pages a").map(function (one) { return { text: one.textContent.trim(), href: one.href }; });
    if (wanted) found = found.concat(known);
    found = found.filter(function (one) { return one.text.toLowerCase().indexOf(wanted) >= 0; });
    if (/^([0-9a-hjkmnp-tv-z]{26}|[0-9a-hjkmnp-tv-z]{8})$/.test(wanted) && /\d/.test(wanted)) found.unshift({ text: "Job " + wanted.toUpperCase(), href: root() + "/jobs/" + wanted.toUpperCase() });
    else if (wanted) {
      ["kind", "tag", "key", "error", "payload"].forEach(function (field) {
        var label = { kind: "Jobs of kind “", tag: "Jobs with tag “", key: "Jobs with key “", error: "Jobs whose error has “", payload: "Jobs whose payload has “" }[field];
        found.push({ text: label + text.trim() + "”", href: root() + "/jobs?" + field + "=" + encodeURIComponent(text.trim()) });
      });
    }
    return found;
  }

  function fill() {
    var list = $("#palette-list");
    list.replaceChildren();
    matches($("#palette-text").value).forEach(function (match, index) {
      var line = document.createElement("li");
      line.id = "place-" + index;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", String(index === 0));
      line.textContent = match.text;
      line.dataset.href = match.href;
      list.appendChild(line);
    });
    markSelected();
  }

  function markSelected() {
    var line = $('#palette-list li[aria-selected="true"]');
    if (line) $("#palette-text").setAttribute("aria-activedescendant", line.id);
    else $("#palette-text").removeAttribute("aria-activedescendant");
  }

  function open() { $("#palette-text").value = ""; fill(); if (!$("#palette").open) $("#palette").showModal(); $("#palette-text").focus(); fetchNames(); }

  function move(step) {
    var lines = all("#palette-list li"), at = lines.findIndex(function (one) { return one.getAttribute("aria-selected") === "true"; });
    if (!lines.length) return;
    lines.forEach(function (one) { one.setAttribute("aria-selected", "false"); });
    var next = lines[(at + step + lines.length) % lines.length];
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
    markSelected();
  }

  function paletteKey(event) {
    if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); move(-1); }
    else if (event.key === "Enter") {
      event.preventDefault();
      var line = $('#palette-list li[aria-selected="true"]');
      if (line) location.href = line.dataset.href;
    }
  }

  // ---------------------------------------------------------------- rows and pages

  function moveRow(step) {
    var list = all("table.rows tbody tr[id], .cards > .card"), at = list.findIndex(function (one) { return one.classList.contains("current"); });
    if (!list.length) return;
    list.forEach(function (one) { one.classList.remove("current"); });
    var next = list[Math.min(Math.max(at + step, 0), list.length - 1)];
    next.classList.add("current");
    next.scrollIntoView({ block: "nearest" });
    var link = $("a, button", next);
    if (link) link.focus({ preventScroll: true });
  }

  // act on the ticked rows, else on the current row; a dialog asks for confirmation
  function actOn(action) {
    var button = $('button[data-bulk="' + action + '"]'), box = $("tr.current input[name=ids]");
    if (!button || button.disabled) return;
    if (box && !$("input[name=ids]:checked")) box.checked = true;
    window.forge.updateChosen();
    button.click();
  }

  function choose(box) { if (box) { box.checked = !box.checked; window.forge.updateChosen(); } }

  function typing(target) { return /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && target.type !== "checkbox"; }

  function shortcut(event) {
    var row = $("tr.current"), box;
    if (ACTS[event.key]) { actOn(ACTS[event.key]); return; }
    switch (event.key) {
      case "g": afterG = true; setTimeout(function () { afterG = false; }, 1500); break;
      case "j": moveRow(1); break;
      case "k": moveRow(-1); break;
      case "x": choose(row && $("input[name=ids]", row)); break;
      case "a": box = $("[data-do=all]"); if (box) box.click(); break;
      case "p": window.forge.togglePause(); break;
      case "t": window.forge.setTheme({ system: "light", light: "dark", dark: "system" }[window.forge.load("theme") || "system"]); break;
      case "/": box = $("[data-first]"); if (box) { event.preventDefault(); box.focus(); } break;
      case "?": $("#help").showModal(); break;
    }
  }

  document.addEventListener("keydown", function (event) {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); open(); return; }
    if (event.target.id === "palette-text") { paletteKey(event); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || window.forge.load("keys") === "off" || $("dialog[open]")) return;
    if (afterG) {
      afterG = false;
      var link = $('.side .pages a[data-key="' + CSS.escape(event.key) + '"]');
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    shortcut(event);
  });

  document.addEventListener("input", function (event) { if (event.target.id === "palette-text") fill(); });
  document.addEventListener("click", function (event) {
    var from = event.target.closest ? event.target : document.body, line = from.closest("#palette-list li"), control = from.closest("[data-do]");
    if (line) { location.href = line.dataset.href; return; }
    if (event.target.matches && event.target.matches("dialog[open]") && event.target.id !== "confirm") { event.target.close(); return; }
    if (control && control.dataset.do === "palette") open();
    if (control && control.dataset.do === "help") $("#help").showModal();
  });
  document.addEventListener("change", function (event) {
    if (event.target.dataset.do === "keys") window.forge.save("keys", event.target.checked ? "on" : "off");
  });
  document.addEventListener("DOMContentLoaded", function () { $("input[data-do=keys]").checked = window.forge.load("keys") !== "off"; });
})();
