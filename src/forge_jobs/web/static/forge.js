// Live updates, notices, drawer, confirmation and search. keys.js has keyboard and palette.
// The pages also work without scripts: forms post, and links navigate.
(function () {
  "use strict";

  function $(query, from) { return (from || document).querySelector(query); }
  function all(query, from) { return Array.prototype.slice.call((from || document).querySelectorAll(query)); }
  function save(name, value) { try { localStorage.setItem("forge." + name, value); } catch (_) { /* storage may be blocked */ } }
  function load(name) { try { return localStorage.getItem("forge." + name); } catch (_) { return null; } }

  var updateTimes = window.forgeTimes.update;

  // ---------------------------------------------------------------- live

  var sources = new Map(), waiting = new Map(), every = 0, paused = false, failures = 0;
  // a connection may end without a notice to the browser: silence for this long is an outage
  var SILENCE_MS = 16000, heardAt = Date.now();

  function subscribe(view, address) {
    if (sources.has(view) || paused || !address) return;
    var source = new EventSource(address);
    sources.set(view, source);
    heardAt = Date.now();
    source.addEventListener("view", function (event) {
      heardAt = Date.now();
      showTrouble("");
      if (every) waiting.set(view, event.data); else show(view, event.data);
    });
    source.addEventListener("alive", function () { heardAt = Date.now(); });
    source.addEventListener("trouble", function (event) { heardAt = Date.now(); showTrouble(event.data); });
    source.addEventListener("over", function () { reconnect(view, address); });
    source.onopen = function () { failures = 0; };
    source.onerror = function () {
      failures += 1;
      showTrouble("No answer from Mission Control: trying again.");
      // a browser does not reconnect after a response that is no event stream: do it here
      if (source.readyState === 2) reconnect(view, address);
    };
  }

  // the login may have ended, or the role may have changed: show that, or reconnect
  function reconnect(view, address) {
    unsubscribe(view);
    refusedStatus(address).then(function (status) {
      if (status === 401) showTrouble("You are logged out.", location.href, "Log in again");
      else if (status === 403) showTrouble("You may no longer look at this.", location.href, "Try again");
      else setTimeout(function () { if (view.isConnected) subscribe(view, address); }, Math.min(1000 * failures, 5000));
    });
  }

  // EventSource does not expose the status of a refused stream: fetch it once
  function refusedStatus(address) {
    var stop = new AbortController();
    return fetch(address, { redirect: "manual", signal: stop.signal }).then(function (response) {
      stop.abort();
      return response.type === "opaqueredirect" ? 401 : response.status;
    }, function () { return 0; });
  }

  function checkSilence() {
    if (paused || !sources.size || document.hidden || Date.now() - heardAt < SILENCE_MS) return;
    showTrouble("No answer from Mission Control: trying again.");
    disconnect();
    connect();
  }

  function unsubscribe(view) {
    var source = sources.get(view);
    if (source) { source.close(); sources.delete(view); }
    waiting.delete(view);
  }

  function connect() {
    var view = $("#view"), body = $("#drawer-body");
    if (view) subscribe(view, view.dataset.live);
    if (body && $("#drawer").open) subscribe(body, body.dataset.live);
  }

  function disconnect() { Array.from(sources.keys()).forEach(unsubscribe); }

  function mayMorph(from, to) {
    if (from.nodeType !== 1) return true;
    if (from.classList.contains("plot") || from.dataset.kept !== undefined || from.classList.contains("scroll") && from.closest(".figures")) return false;
    // keep input in forms that were edited or have the focus
    if (from.tagName === "FORM" && from.dataset.keep !== undefined && (from.touched || from.contains(document.activeElement))) return false;
    if (from.tagName === "INPUT" && from.type === "checkbox" && to.value === from.value) return false;
    if (from.tagName === "TIME" && to.getAttribute && from.getAttribute("datetime") === to.getAttribute("datetime")) return false;
    return true;
  }

  function show(view, html) {
    var current = $(".current", view);
    window.Idiomorph.morph(view, window.forgeCalm.prepare(view, html), {
      morphStyle: "innerHTML",
      callbacks: {
        beforeNodeMorphed: mayMorph,
        beforeAttributeUpdated: function (name, node) { return !(name === "open" && node.tagName === "DETAILS"); }
      }
    });
    window.htmx.process(view);
    if (current && current.id && document.getElementById(current.id)) document.getElementById(current.id).classList.add("current");
    updateTimes(view);
    updateChosen();
    window.forgeCharts.draw(false);
  }

  function showTrouble(text, address, label) {
    var banner = $("#trouble"), dot = $(".refresh .dot"), link;
    if (dot) {
      dot.classList.toggle("bad", !!text);
      dot.classList.toggle("live", !text && !paused);
    }
    if (text && banner.hidden) banner.dataset.since = window.forgeTimes.clock(new Date());
    banner.hidden = !text;
    if (banner.dataset.said === text) return;
    banner.dataset.said = text;
    banner.textContent = text && text + " The page shows the state of " + banner.dataset.since + ".";
    if (!address) return;
    link = document.createElement("a");
    link.href = address;
    link.textContent = label;
    banner.append(" ", link);
  }

  function setRefresh(value) {
    var choice = $("select[data-do=refresh]");
    paused = value === "off";
    every = paused ? 0 : Number(value);
    if (choice) {
      choice.value = value;
      $(".dot", choice.parentNode).classList.toggle("live", !paused && $("#trouble").hidden);
      document.body.classList.toggle("still", paused);
    }
    if (paused) { disconnect(); showTrouble(""); } else { flush(); connect(); }
  }

  function flush() { waiting.forEach(function (html, view) { show(view, html); }); waiting.clear(); }

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
    if (given.curl) line.appendChild(copyButton("Copy as curl", given.curl));
    $("#notices").appendChild(line);
    setTimeout(function () { line.remove(); }, given.bad ? 12000 : 7000);
  }

  function copyButton(label, text) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = label;
    button.dataset.copyText = text;
    button.dataset.copy = "";
    return button;
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("[data-copy]");
    if (!button || !navigator.clipboard) return;
    var label = button.textContent;
    navigator.clipboard.writeText(button.dataset.copyText || $(button.dataset.copy).textContent).then(function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = label; }, 2000);
    }, function () { /* not allowed: the text can be selected */ });
  });

  document.addEventListener("forge:notice", function (event) {
    notice(event.detail);
    if (event.detail.bad) return;
    var form = event.target.closest && event.target.closest("form");
    window.forgeCalm.showOwnAction();
    if (form) form.touched = false;
    if (form && form.dataset.agreed !== undefined && !form.closest("dialog")) setTimeout(function () { location.href = $("[data-close]", form).href; }, 1500);
    if ($("#bulk").open) $("#bulk").close();
  });
  document.addEventListener("input", function (event) {
    var form = event.target.closest && event.target.closest("form[data-keep]");
    if (form) form.touched = true;
  });

  // ---------------------------------------------------------------- confirmation

  var confirmed = new WeakSet(), questions = 0;

  function askConfirmation(title, command, verb, curl) {
    var dialog = $("#confirm"), yes = $("#confirm-yes"), question = ++questions;
    $("#confirm-title").textContent = title;
    yes.textContent = verb;
    yes.className = /^(cancel|delete|lift)/i.test(verb) ? "danger strong" : "primary";
    $("#confirm-command").textContent = command || "";
    $("#confirm-command").parentNode.hidden = !command;
    $("#confirm-curl").textContent = curl || "";
    $("#confirm-call").hidden = !curl;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise(function (resolve) {
      dialog.addEventListener("close", function closed() {
        // The event comes after the dialog has closed, and the next question may be open by then.
        if (dialog.open && question === questions) return;
        dialog.removeEventListener("close", closed);
        resolve(question === questions && dialog.returnValue === "yes");
      });
    });
  }

  document.addEventListener("submit", function (event) {
    var form = event.target;
    if (confirmed.has(form)) { confirmed.delete(form); return; }
    if (form.id === "acts") { event.preventDefault(); bulk(form, event.submitter); return; }
    if (!form.dataset.confirm) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    askConfirmation(form.dataset.confirm, form.dataset.command, $("button", form).textContent.trim(), form.dataset.curl).then(function (yes) {
      if (yes) { confirmed.add(form); form.requestSubmit(); }
    });
  }, true);

  function bulk(form, button) {
    var action = button ? button.dataset.bulk : "", chosen = all("input[name=ids]:checked", form);
    if (form.elements.all && form.elements.all.checked) { preview(form, action); return; }
    if (!chosen.length) { notice({ text: "Choose at least one job, or all matching.", bad: true }); return; }
    var ids = chosen.map(function (one) { return one.value; });
    var verb = button.textContent.trim(), command = "forge jobs " + action + " " + ids.slice(0, 3).join(" ") + (ids.length > 3 ? " …" : "");
    var call = "curl -X POST -H \"Authorization: Bearer $FORGE_TOKEN\" -H 'content-type: application/json' -d '";
    var curl = call + JSON.stringify({ action: action, ids: ids.slice(0, 100) }) + "' \"$FORGE_WEB_URL/api/bulk\"";
    if (ids.length > 100) curl = "";
    askConfirmation(verb + " " + ids.length + (ids.length === 1 ? " job?" : " jobs?"), command, verb, curl).then(function (yes) {
      if (!yes) return;
      window.htmx.ajax("POST", button.formAction, { source: document.body, swap: "none", values: { ids: ids.join(",") } });
      chosen.forEach(function (one) { one.checked = false; });
      var every = $("[data-do=all]", form);
      if (every) every.checked = false;
      updateChosen();
    });
  }

  // show how many jobs an action on all matches would reach, and ask for confirmation
  function preview(form, action) {
    var query = new URLSearchParams();
    all("input[type=hidden]", form).forEach(function (one) { query.set(one.name, one.value); });
    fetchMain(form.dataset.preview + action + "?" + query).then(function (nodes) {
      var body = $("#bulk-body");
      body.replaceChildren.apply(body, nodes);
      window.htmx.process(body);
      $("#bulk").showModal();
      if (form.elements.all) form.elements.all.checked = false;
    });
  }

  function fetchMain(address) {
    return fetch(address, { headers: { "accept": "text/html" } }).then(function (response) { return response.text(); }).then(function (html) {
      var page = new DOMParser().parseFromString(html, "text/html"), view = page.querySelector("#view") || page.querySelector("main");
      return all(":scope > *", view).map(function (one) { return document.importNode(one, true); });
    });
  }

  // ---------------------------------------------------------------- searching

  // One request reads a bounded number of jobs: repeat it until something is found. The banner is
  // outside of the part that live updates replace.
  var MAX_REQUESTS = 2000;

  function continueSearch(link) {
    var status = document.createElement("span"), stop = document.createElement("button"), banner = $("#searching");
    var controller = new AbortController(), seen = 0, requests = 0, shownAt = 0, address = link.href;
    if (banner) banner.remove();
    banner = document.createElement("div");
    banner.id = "searching";
    banner.className = "banner going";
    status.setAttribute("role", "status");
    stop.type = "button";
    stop.textContent = "Stop";
    stop.addEventListener("click", function () { controller.abort(); });
    banner.append(status, stop);
    $("#view").before(banner);

    function showProgress(text) { status.textContent = "Looked through " + seen.toLocaleString("en") + " jobs" + text; }

    function count(page) { seen += Number($(".matching", page).dataset.looked); }

    function offerContinue(text) {
      var on = document.createElement("a");
      on.href = address;
      on.dataset.search = seen;
      on.textContent = "Go on";
      showProgress(text);
      stop.replaceWith(on);
    }

    function readNext() {
      requests += 1;
      fetch(address, { headers: { "accept": "text/html" }, signal: controller.signal }).then(function (response) {
        if (!response.ok || response.redirected) { location.href = address; return null; }
        return response.text();
      }).then(function (html) {
        if (html === null) return;
        var page = new DOMParser().parseFromString(html, "text/html"), next = $("a[data-search]", page);
        if ($("tr[id]", page)) { location.href = address; return; }
        count(page);
        if (!next) { showProgress(": none fits."); stop.remove(); return; }
        address = new URL(next.getAttribute("href"), location.href).href;
        if (requests >= MAX_REQUESTS) { offerContinue(", none fits so far."); return; }
        // twice a second: screen readers announce every change
        if (Date.now() - shownAt > 500) { shownAt = Date.now(); showProgress(", none fits so far."); }
        readNext();
      }).catch(function () { offerContinue(controller.signal.aborted ? ". Stopped." : ". No answer from Mission Control."); });
    }

    // start with the page, or continue where the search was stopped
    if (link.dataset.search) seen = Number(link.dataset.search); else count(document);
    showProgress(", none fits so far.");
    readNext();
  }

  // ---------------------------------------------------------------- drawer

  document.addEventListener("click", function (event) {
    var from = event.target.closest ? event.target : document.body, link = from.closest("a[data-drawer]");
    var search = from.closest("a[data-search]");
    if (search && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); continueSearch(search); return; }
    if (from.closest("[data-close]") && $("#bulk").open) { event.preventDefault(); $("#bulk").close(); return; }
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openDrawer(link, link.textContent);
  });

  // the job in the drawer is in the address: it can be sent, and the browser's Back closes it
  function drawerJob() { return new URL(location.href).searchParams.get("job"); }

  function addressWithJob(id) {
    var address = new URL(location.href);
    if (id) address.searchParams.set("job", id); else address.searchParams.delete("job");
    return address;
  }

  function jobOf(href) {
    var match = /\/jobs\/([0-9A-Za-z]{8,26})$/.exec(new URL(href, location.href).pathname);
    return match && match[1];
  }

  function openDrawer(link, title, restored) {
    var body = $("#drawer-body"), root = $(".brand").getAttribute("href").replace(/\/$/, "");
    if (!$("#drawer").open) showSkeleton(body);
    fetchMain(link.href).then(function (nodes) {
      var id = jobOf(link.href), heading;
      unsubscribe(body);
      body.replaceChildren.apply(body, nodes);
      heading = $("[data-kind]", body);
      body.dataset.live = root + "/live?view=" + encodeURIComponent(new URL(link.href).pathname.slice(root.length));
      $("#drawer-title").textContent = title || heading && heading.dataset.kind || "Job";
      $("#drawer-link").href = link.href;
      window.htmx.process(body);
      updateTimes(body);
      if (id && !restored && drawerJob() !== id) history.pushState({ drawer: true }, "", addressWithJob(id));
      if (!$("#drawer").open) $("#drawer").showModal();
      connect();
    });
  }

  // grey lines where the content will be, if it takes longer than a moment
  function showSkeleton(body) {
    var lines = document.createElement("div");
    lines.className = "skeleton";
    lines.setAttribute("aria-hidden", "true");
    body.replaceChildren(lines);
    $("#drawer-title").textContent = "Job";
    setTimeout(function () { if (lines.isConnected && !$("#drawer").open) $("#drawer").showModal(); }, 150);
  }

  function restoreDrawer() {
    var id = drawerJob(), root = $(".brand").getAttribute("href").replace(/\/$/, ""), link;
    if (!id || !jobOf(root + "/jobs/" + id)) { if ($("#drawer").open) $("#drawer").close(); return; }
    link = document.createElement("a");
    link.href = root + "/jobs/" + encodeURIComponent(id);
    openDrawer(link, "", true);
  }

  function drawerClosed() {
    unsubscribe($("#drawer-body"));
    if (!drawerJob()) return;
    if (history.state && history.state.drawer) history.back();
    else history.replaceState(history.state, "", addressWithJob(""));
  }

  // ---------------------------------------------------------------- theme

  function setTheme(value) {
    save("theme", value);
    if (value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    $("select[data-do=theme]").value = value;
    window.forgeCharts.draw(true);
  }

  // ---------------------------------------------------------------- start

  document.addEventListener("click", function (event) {
    var control = event.target.closest ? event.target.closest("[data-do]") : null;
    if (control && control.dataset.do === "all") all("input[name=ids]").forEach(function (one) { one.checked = control.checked; });
    updateChosen();
  });

  // the number of ticked rows, beside the buttons
  function updateChosen() {
    var target = $("#chosen"), count = all("input[name=ids]:checked").length;
    if (target && target.textContent !== (count ? count + " chosen" : "")) target.textContent = count ? count + " chosen" : "";
  }
  document.addEventListener("change", function (event) {
    if (event.target.dataset.do === "theme") setTheme(event.target.value);
    if (event.target.dataset.do === "zone") { window.forgeTimes.setZone(event.target.value); window.forgeCharts.draw(true); }
    if (event.target.dataset.do === "refresh") { save("pace", event.target.value); setRefresh(event.target.value); }
  });
  // browsers without a clipboard, or without https, get no button
  if (navigator.clipboard) document.documentElement.classList.add("copies");
  document.addEventListener("click", function (event) {
    var button = event.target.closest ? event.target.closest("[data-copy]") : null;
    if (!button) return;
    var source = document.getElementById(button.dataset.copy);
    navigator.clipboard.writeText(source ? source.textContent : "").then(function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 2000);
    });
  });
  document.addEventListener("forge:zoom", function (event) { location.href = event.detail; });
  document.addEventListener("visibilitychange", function () { if (document.hidden) disconnect(); else connect(); });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", function (event) { if (event.persisted) connect(); });

  window.forge = {
    $: $, all: all, show: show, save: save, load: load, setTheme: setTheme, updateChosen: updateChosen,
    togglePause: function () { setRefresh(paused ? (load("pace") === "off" ? "0" : load("pace") || "0") : "off"); }
  };

  document.addEventListener("DOMContentLoaded", function () {
    $("select[data-do=theme]").value = load("theme") || "system";
    $("select[data-do=zone]").value = window.forgeTimes.zone();
    $("#drawer").addEventListener("close", drawerClosed);
    window.addEventListener("popstate", restoreDrawer);
    if (drawerJob()) restoreDrawer();
    var pages = $(".side .pages"), current = $("a[aria-current]", pages);
    if (current) pages.scrollLeft = current.offsetLeft - 32;
    updateTimes(document);
    setInterval(function () { updateTimes(document); checkSilence(); }, 1000);
    var ticks = 0;
    setInterval(function () { ticks += 1; if (every && ticks % every === 0) flush(); }, 1000);
    all("#notices .notice").forEach(function (one) { setTimeout(function () { one.remove(); }, 8000); });
    setRefresh(load("pace") || "0");
  });
})();
