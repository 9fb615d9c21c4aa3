// What the pages do in the browser: live parts, notices, keyboard, drawer, confirmation.
// The pages work without it; forms post and links lead on.
(function () {
  "use strict";

  function $(query, from) { return (from || document).querySelector(query); }
  function all(query, from) { return Array.prototype.slice.call((from || document).querySelectorAll(query)); }
  function keep(name, value) { try { localStorage.setItem("forge." + name, value); } catch (_) { /* closed */ } }
  function kept(name) { try { return localStorage.getItem("forge." + name); } catch (_) { return null; } }

  // ---------------------------------------------------------------- times

  function ago(seconds) {
    var future = seconds < 0, left = Math.abs(seconds), text;
    if (left < 60) text = Math.floor(left) + " s";
    else if (left < 3600) text = Math.floor(left / 60) + " min";
    else if (left < 86400) text = Math.floor(left / 3600) + " h " + Math.floor(left % 3600 / 60) + " min";
    else text = Math.floor(left / 86400) + " d " + Math.floor(left % 86400 / 3600) + " h";
    return future ? "in " + text : text + " ago";
  }

  function tellTimes(from) {
    var now = Date.now();
    all("time[datetime]", from).forEach(function (one) {
      var at = new Date(one.getAttribute("datetime"));
      one.title = at.toLocaleString();
      one.textContent = ago((now - at.getTime()) / 1000);
    });
  }

  // ---------------------------------------------------------------- live

  var source = null, paused = false;

  function connect() {
    var view = $("#view");
    if (!view || !view.dataset.live || paused || source) return;
    source = new EventSource(view.dataset.live);
    source.addEventListener("view", function (event) { trouble(""); show(view, event.data); });
    source.addEventListener("trouble", function (event) { trouble(event.data); });
    source.onerror = function () { trouble("No answer from Mission Control: trying again."); };
    source.onopen = function () { trouble(""); };
  }

  function disconnect() { if (source) { source.close(); source = null; } }

  function show(view, html) {
    // somebody who types or chooses must not lose it
    var chosen = all("input[name=ids]:checked", view).map(function (one) { return one.value; });
    var current = $("tr.current", view);
    window.Idiomorph.morph(view, html, {
      morphStyle: "innerHTML",
      ignoreActiveValue: true,
      callbacks: {
        beforeNodeMorphed: function (from) { return !(from.nodeType === 1 && from.classList.contains("plot")); }
      }
    });
    window.htmx.process(view);
    chosen.forEach(function (value) {
      var box = all("input[name=ids]", view).find(function (one) { return one.value === value; });
      if (box) box.checked = true;
    });
    if (current && current.id && document.getElementById(current.id)) document.getElementById(current.id).classList.add("current");
    tellTimes(view);
    window.forgeCharts.draw(false);
  }

  function trouble(text) {
    var banner = $("#trouble");
    if (!banner) return;
    if (banner.textContent !== text) banner.textContent = text;
    banner.hidden = !text;
  }

  function setPaused(value) {
    paused = value;
    var button = $("[data-do=pause]");
    if (button) {
      button.setAttribute("aria-pressed", String(value));
      $("[data-live-text]", button).textContent = value ? "Paused" : "Live";
      $(".dot", button).classList.toggle("live", !value);
    }
    if (value) disconnect(); else connect();
  }

  // ---------------------------------------------------------------- notices

  function notice(given) {
    var line = document.createElement("p"), command;
    line.className = "notice" + (given.bad ? " bad" : "");
    line.textContent = given.text + " ";
    if (given.command) {
      command = document.createElement("code");
      command.textContent = given.command;
      line.appendChild(command);
    }
    $("#notices").appendChild(line);
    setTimeout(function () { line.remove(); }, given.bad ? 12000 : 6000);
  }

  document.addEventListener("forge:notice", function (event) { notice(event.detail); });

  // ---------------------------------------------------------------- confirmation

  var agreed = new WeakSet();

  function ask(title, text, command) {
    var dialog = $("#confirm");
    $("#confirm-title").textContent = title;
    $("#confirm-text").textContent = text;
    $("#confirm-command").textContent = command || "";
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise(function (resolve) {
      dialog.addEventListener("close", function () { resolve(dialog.returnValue === "yes"); }, { once: true });
    });
  }

  document.addEventListener("submit", function (event) {
    var form = event.target;
    if (agreed.has(form)) { agreed.delete(form); return; }
    if (form.id === "acts") { bulk(form, event); return; }
    if (!form.dataset.confirm) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    ask(form.dataset.confirm, "", form.dataset.command).then(function (yes) {
      if (yes) { agreed.add(form); form.requestSubmit(); }
    });
  }, true);

  function bulk(form, event) {
    var button = event.submitter, action = button ? button.dataset.bulk : "", everything = form.elements.all && form.elements.all.checked;
    var count = all("input[name=ids]:checked", form).length;
    if (!everything && count === 0) {
      event.preventDefault();
      notice({ text: "Choose at least one job, or all matching.", bad: true });
      return;
    }
    event.preventDefault();
    var what = everything ? $(".matching b", form.closest("#view")).textContent + " matching jobs" : count + (count === 1 ? " job" : " jobs");
    ask(action.replace("-", " ") + " " + what + "?", "", everything ? "forge jobs " + action + " …" : "").then(function (yes) {
      if (!yes) return;
      if (everything) all("input[name=ids]:checked", form).forEach(function (one) { one.checked = false; });
      agreed.add(form);
      form.requestSubmit(button);
    });
  }

  // ---------------------------------------------------------------- drawer

  document.addEventListener("click", function (event) {
    var link = event.target.closest ? event.target.closest("a[data-drawer]") : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openDrawer(link.href);
  });

  function openDrawer(address) {
    fetch(address, { headers: { "accept": "text/html" } }).then(function (answer) { return answer.text(); }).then(function (html) {
      var page = new DOMParser().parseFromString(html, "text/html"), body = $("#drawer-body"), part = page.querySelector("#view");
      body.replaceChildren();
      var title = document.createElement("h2");
      title.textContent = (page.querySelector("h1") || {}).textContent || "Job";
      body.appendChild(title);
      if (part) all(":scope > *", part).forEach(function (one) { body.appendChild(document.importNode(one, true)); });
      window.htmx.process(body);
      tellTimes(body);
      $("#drawer").showModal();
    });
  }

  // ---------------------------------------------------------------- palette

  function places(text) {
    var wanted = text.trim().toLowerCase(), found = all(".top nav a").map(function (one) { return { text: one.textContent, href: one.href }; });
    found = found.filter(function (one) { return one.text.toLowerCase().indexOf(wanted) >= 0; });
    var root = $(".brand").getAttribute("href").replace(/\/$/, "");
    if (/^[0-9a-z]{26}$/.test(wanted)) found.unshift({ text: "Job " + wanted.toUpperCase(), href: root + "/jobs/" + wanted.toUpperCase() });
    else if (wanted) {
      found.push({ text: "Jobs of kind " + text.trim(), href: root + "/jobs?kind=" + encodeURIComponent(text.trim()) });
      found.push({ text: "Jobs in queue " + text.trim(), href: root + "/jobs?queue=" + encodeURIComponent(text.trim()) });
    }
    return found;
  }

  function fillPalette() {
    var list = $("#palette-list");
    list.replaceChildren();
    places($("#palette-text").value).forEach(function (place, index) {
      var line = document.createElement("li");
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", String(index === 0));
      line.textContent = place.text;
      line.dataset.href = place.href;
      list.appendChild(line);
    });
  }

  function openPalette() { $("#palette-text").value = ""; fillPalette(); $("#palette").showModal(); $("#palette-text").focus(); }

  function movePalette(step) {
    var lines = all("#palette-list li"), at = lines.findIndex(function (one) { return one.getAttribute("aria-selected") === "true"; });
    if (!lines.length) return;
    lines.forEach(function (one) { one.setAttribute("aria-selected", "false"); });
    var next = lines[(at + step + lines.length) % lines.length];
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  }

  // ---------------------------------------------------------------- keyboard

  var afterG = false;

  function rows() { return all("table.rows tbody tr[id]"); }

  function moveRow(step) {
    var list = rows(), at = list.findIndex(function (one) { return one.classList.contains("current"); });
    if (!list.length) return;
    list.forEach(function (one) { one.classList.remove("current"); });
    var next = list[Math.min(Math.max(at + step, 0), list.length - 1)];
    next.classList.add("current");
    next.scrollIntoView({ block: "nearest" });
    var link = $("a", next);
    if (link) link.focus();
  }

  function typing(target) { return /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && target.type !== "checkbox"; }

  document.addEventListener("keydown", function (event) {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); return; }
    if (event.target.id === "palette-text") { paletteKey(event); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || kept("keys") === "off" || $("dialog[open]")) return;
    if (afterG) {
      afterG = false;
      var link = $('.top nav a[data-key="' + CSS.escape(event.key) + '"]');
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    shortcut(event);
  });

  function paletteKey(event) {
    if (event.key === "ArrowDown") { event.preventDefault(); movePalette(1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); movePalette(-1); }
    else if (event.key === "Enter") {
      event.preventDefault();
      var line = $('#palette-list li[aria-selected="true"]');
      if (line) location.href = line.dataset.href;
    }
  }

  function shortcut(event) {
    var row = $("tr.current");
    switch (event.key) {
      case "g": afterG = true; setTimeout(function () { afterG = false; }, 1500); break;
      case "j": moveRow(1); break;
      case "k": moveRow(-1); break;
      case "x": if (row) { var box = $("input[name=ids]", row); if (box) box.checked = !box.checked; } break;
      case "p": setPaused(!paused); break;
      case "/": var field = $("[data-first]"); if (field) { event.preventDefault(); field.focus(); } break;
      case "?": $("#help").showModal(); break;
      default: return;
    }
  }

  // ---------------------------------------------------------------- start

  document.addEventListener("input", function (event) { if (event.target.id === "palette-text") fillPalette(); });
  document.addEventListener("click", function (event) {
    var line = event.target.closest ? event.target.closest("#palette-list li") : null;
    if (line) { location.href = line.dataset.href; return; }
    var control = event.target.closest ? event.target.closest("[data-do]") : null;
    if (!control) return;
    switch (control.dataset.do) {
      case "palette": openPalette(); break;
      case "pause": setPaused(!paused); break;
      case "help": $("#help").showModal(); break;
      case "all": all("input[name=ids]").forEach(function (one) { one.checked = control.checked; }); break;
    }
  });
  document.addEventListener("change", function (event) {
    if (event.target.dataset.do === "theme") {
      var value = event.target.value;
      keep("theme", value);
      if (value === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = value;
      window.forgeCharts.draw(true);
    }
    if (event.target.dataset.do === "keys") keep("keys", event.target.checked ? "on" : "off");
  });
  document.addEventListener("forge:zoom", function (event) { location.href = event.detail; });
  document.addEventListener("visibilitychange", function () { if (document.hidden) disconnect(); else connect(); });

  document.addEventListener("DOMContentLoaded", function () {
    var theme = $("select[data-do=theme]"), keys = $("input[data-do=keys]");
    if (theme) theme.value = kept("theme") || "system";
    if (keys) keys.checked = kept("keys") !== "off";
    tellTimes(document);
    setInterval(function () { tellTimes(document); }, 1000);
    all("#notices .notice").forEach(function (one) { setTimeout(function () { one.remove(); }, 8000); });
    connect();
  });
})();
