// What the pages do in the browser: live parts, notices, drawer, confirmation. keys.js has the rest.
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
    if (left < 1) return "now";
    if (left < 60) text = Math.floor(left) + " s";
    else if (left < 3600) text = Math.floor(left / 60) + " min";
    else if (left < 86400) text = Math.floor(left / 3600) + " h " + Math.floor(left % 3600 / 60) + " min";
    else text = Math.floor(left / 86400) + " d " + Math.floor(left % 86400 / 3600) + " h";
    return future ? "in " + text : text + " ago";
  }

  function tellTimes(from) {
    var now = Date.now();
    all("time[datetime]", from).forEach(function (one) {
      var at = new Date(one.getAttribute("datetime")), passed = (now - at.getTime()) / 1000;
      // what is awaited cannot be over: the next change takes it away
      var text = passed > 0 && one.dataset.until !== undefined ? "now" : ago(passed);
      if (!one.title) one.title = at.toLocaleString();
      if (one.textContent !== text) one.textContent = text;
    });
  }

  // ---------------------------------------------------------------- live

  var sources = new Map(), waiting = new Map(), every = 0, paused = false, failing = 0;

  function watch(view, address) {
    if (sources.has(view) || paused || !address) return;
    var source = new EventSource(address);
    sources.set(view, source);
    source.addEventListener("view", function (event) {
      trouble("");
      if (every) waiting.set(view, event.data); else show(view, event.data);
    });
    source.addEventListener("trouble", function (event) { trouble(event.data); });
    source.addEventListener("over", function () { ended(view, address); });
    source.onopen = function () { failing = 0; };
    source.onerror = function () {
      failing += 1;
      trouble("No answer from Mission Control: trying again.");
      // a browser gives up after an answer that is no stream; a page must not
      if (source.readyState === 2) ended(view, address);
    };
  }

  // a login may be over, or reach less far than before: say so, or else go on
  function ended(view, address) {
    unwatch(view);
    refusal(address).then(function (status) {
      if (status === 401) trouble("You are logged out.", location.href, "Log in again");
      else if (status === 403) trouble("You may no longer look at this.", location.href, "Try again");
      else setTimeout(function () { if (view.isConnected) watch(view, address); }, Math.min(1000 * failing, 5000));
    });
  }

  // a stream that is refused says no more than "closed": ask once in a way that is answered
  function refusal(address) {
    var stop = new AbortController();
    return fetch(address, { redirect: "manual", signal: stop.signal }).then(function (answer) {
      stop.abort();
      return answer.type === "opaqueredirect" ? 401 : answer.status;
    }, function () { return 0; });
  }

  function unwatch(view) {
    var source = sources.get(view);
    if (source) { source.close(); sources.delete(view); }
    waiting.delete(view);
  }

  function connect() {
    var view = $("#view"), body = $("#drawer-body");
    if (view) watch(view, view.dataset.live);
    if (body && $("#drawer").open) watch(body, body.dataset.live);
  }

  function disconnect() { Array.from(sources.keys()).forEach(unwatch); }

  function untouched(from, to) {
    if (from.nodeType !== 1) return true;
    if (from.classList.contains("plot") || from.classList.contains("scroll") && from.closest(".figures")) return false;
    // somebody who types or chooses must not lose it
    if (from.tagName === "FORM" && from.dataset.keep !== undefined && (from.touched || from.contains(document.activeElement))) return false;
    if (from.tagName === "INPUT" && from.type === "checkbox" && to.value === from.value) return false;
    if (from.tagName === "TIME" && to.getAttribute && from.getAttribute("datetime") === to.getAttribute("datetime")) return false;
    return true;
  }

  function show(view, html) {
    var current = $(".current", view);
    window.Idiomorph.morph(view, html, {
      morphStyle: "innerHTML",
      callbacks: {
        beforeNodeMorphed: untouched,
        beforeAttributeUpdated: function (name, node) { return !(name === "open" && node.tagName === "DETAILS"); }
      }
    });
    window.htmx.process(view);
    if (current && current.id && document.getElementById(current.id)) document.getElementById(current.id).classList.add("current");
    tellTimes(view);
    tellChosen();
    window.forgeCharts.draw(false);
  }

  function trouble(text, address, way) {
    var banner = $("#trouble"), link;
    banner.hidden = !text;
    if (banner.dataset.said === text) return;
    banner.dataset.said = text;
    banner.textContent = text;
    if (!address) return;
    link = document.createElement("a");
    link.href = address;
    link.textContent = way;
    banner.append(" ", link);
  }

  function setPace(value) {
    var choice = $("select[data-do=refresh]");
    paused = value === "off";
    every = paused ? 0 : Number(value);
    if (choice) {
      choice.value = value;
      $(".dot", choice.parentNode).classList.toggle("live", !paused);
      document.body.classList.toggle("still", paused);
    }
    if (paused) { disconnect(); trouble(""); } else { flush(); connect(); }
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
    $("#notices").appendChild(line);
    setTimeout(function () { line.remove(); }, given.bad ? 12000 : 7000);
  }

  document.addEventListener("forge:notice", function (event) {
    notice(event.detail);
    if (event.detail.bad) return;
    var form = event.target.closest && event.target.closest("form");
    if (form) form.touched = false;
    if (form && form.dataset.agreed !== undefined && !form.closest("dialog")) setTimeout(function () { location.href = $("[data-close]", form).href; }, 1500);
    if ($("#bulk").open) $("#bulk").close();
  });
  document.addEventListener("input", function (event) {
    var form = event.target.closest && event.target.closest("form[data-keep]");
    if (form) form.touched = true;
  });

  // ---------------------------------------------------------------- confirmation

  var agreed = new WeakSet();

  function ask(title, command, verb) {
    var dialog = $("#confirm"), yes = $("#confirm-yes");
    $("#confirm-title").textContent = title;
    yes.textContent = verb;
    yes.className = /^(cancel|delete|lift)/i.test(verb) ? "danger strong" : "primary";
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
    if (form.id === "acts") { event.preventDefault(); bulk(form, event.submitter); return; }
    if (!form.dataset.confirm) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    ask(form.dataset.confirm, form.dataset.command, $("button", form).textContent.trim()).then(function (yes) {
      if (yes) { agreed.add(form); form.requestSubmit(); }
    });
  }, true);

  function bulk(form, button) {
    var action = button ? button.dataset.bulk : "", chosen = all("input[name=ids]:checked", form);
    if (form.elements.all && form.elements.all.checked) { preview(form, action); return; }
    if (!chosen.length) { notice({ text: "Choose at least one job, or all matching.", bad: true }); return; }
    var ids = chosen.map(function (one) { return one.value; });
    var verb = button.textContent.trim(), same = "forge jobs " + action + " " + ids.slice(0, 3).join(" ") + (ids.length > 3 ? " …" : "");
    ask(verb + " " + ids.length + (ids.length === 1 ? " job?" : " jobs?"), same, verb).then(function (yes) {
      if (!yes) return;
      window.htmx.ajax("POST", button.formAction, { source: document.body, swap: "none", values: { ids: ids.join(",") } });
      chosen.forEach(function (one) { one.checked = false; });
      var every = $("[data-do=all]", form);
      if (every) every.checked = false;
      tellChosen();
    });
  }

  // how many an action on all matching jobs would reach, before anybody agrees to it
  function preview(form, action) {
    var query = new URLSearchParams();
    all("input[type=hidden]", form).forEach(function (one) { query.set(one.name, one.value); });
    part(form.dataset.preview + action + "?" + query).then(function (nodes) {
      var body = $("#bulk-body");
      body.replaceChildren.apply(body, nodes);
      window.htmx.process(body);
      $("#bulk").showModal();
      if (form.elements.all) form.elements.all.checked = false;
    });
  }

  function part(address) {
    return fetch(address, { headers: { "accept": "text/html" } }).then(function (answer) { return answer.text(); }).then(function (html) {
      var page = new DOMParser().parseFromString(html, "text/html"), view = page.querySelector("#view") || page.querySelector("main");
      return all(":scope > *", view).map(function (one) { return document.importNode(one, true); });
    });
  }

  // ---------------------------------------------------------------- searching

  // One look of the server is bounded: go from look to look until something is found. The banner
  // stands outside the part that lives.
  var LOOKS_MOST = 2000;

  function searchOn(link) {
    var told = document.createElement("span"), stop = document.createElement("button"), banner = $("#searching");
    var asking = new AbortController(), seen = 0, looks = 0, saidAt = 0, address = link.href;
    if (banner) banner.remove();
    banner = document.createElement("div");
    banner.id = "searching";
    banner.className = "banner going";
    told.setAttribute("role", "status");
    stop.type = "button";
    stop.textContent = "Stop";
    stop.addEventListener("click", function () { asking.abort(); });
    banner.append(told, stop);
    $("#view").before(banner);

    function tell(text) { told.textContent = "Looked through " + seen.toLocaleString("en") + " jobs" + text; }

    function count(page) { seen += Number($(".matching", page).dataset.looked); }

    function rest(text) {
      var on = document.createElement("a");
      on.href = address;
      on.dataset.search = seen;
      on.textContent = "Go on";
      tell(text);
      stop.replaceWith(on);
    }

    function look() {
      looks += 1;
      fetch(address, { headers: { "accept": "text/html" }, signal: asking.signal }).then(function (answer) {
        if (!answer.ok || answer.redirected) { location.href = address; return null; }
        return answer.text();
      }).then(function (html) {
        if (html === null) return;
        var page = new DOMParser().parseFromString(html, "text/html"), next = $("a[data-search]", page);
        if ($("tr[id]", page)) { location.href = address; return; }
        count(page);
        if (!next) { tell(": none fits."); stop.remove(); return; }
        address = new URL(next.getAttribute("href"), location.href).href;
        if (looks >= LOOKS_MOST) { rest(", none fits so far."); return; }
        // often enough for eyes, seldom enough for ears
        if (Date.now() - saidAt > 500) { saidAt = Date.now(); tell(", none fits so far."); }
        look();
      }).catch(function () { rest(asking.signal.aborted ? ". Stopped." : ". No answer from Mission Control."); });
    }

    // from the page, or from where it was stopped
    if (link.dataset.search) seen = Number(link.dataset.search); else count(document);
    tell(", none fits so far.");
    look();
  }

  // ---------------------------------------------------------------- drawer

  document.addEventListener("click", function (event) {
    var from = event.target.closest ? event.target : document.body, link = from.closest("a[data-drawer]");
    var search = from.closest("a[data-search]");
    if (search && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); searchOn(search); return; }
    if (from.closest("[data-close]") && $("#bulk").open) { event.preventDefault(); $("#bulk").close(); return; }
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openDrawer(link);
  });

  function openDrawer(link) {
    var body = $("#drawer-body"), root = $(".brand").getAttribute("href").replace(/\/$/, "");
    part(link.href).then(function (nodes) {
      unwatch(body);
      body.replaceChildren.apply(body, nodes);
      body.dataset.live = root + "/live?view=" + encodeURIComponent(new URL(link.href).pathname.slice(root.length));
      $("#drawer-title").textContent = link.textContent;
      $("#drawer-link").href = link.href;
      window.htmx.process(body);
      tellTimes(body);
      if (!$("#drawer").open) $("#drawer").showModal();
      connect();
    });
  }

  // ---------------------------------------------------------------- theme

  function setTheme(value) {
    keep("theme", value);
    if (value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    $("select[data-do=theme]").value = value;
    window.forgeCharts.draw(true);
  }

  // ---------------------------------------------------------------- start

  document.addEventListener("click", function (event) {
    var control = event.target.closest ? event.target.closest("[data-do]") : null;
    if (control && control.dataset.do === "all") all("input[name=ids]").forEach(function (one) { one.checked = control.checked; });
    tellChosen();
  });

  // how many rows an action would reach, beside the buttons
  function tellChosen() {
    var place = $("#chosen"), count = all("input[name=ids]:checked").length;
    if (place && place.textContent !== (count ? count + " chosen" : "")) place.textContent = count ? count + " chosen" : "";
  }
  document.addEventListener("change", function (event) {
    if (event.target.dataset.do === "theme") setTheme(event.target.value);
    if (event.target.dataset.do === "refresh") { keep("pace", event.target.value); setPace(event.target.value); }
  });
  document.addEventListener("forge:zoom", function (event) { location.href = event.detail; });
  document.addEventListener("visibilitychange", function () { if (document.hidden) disconnect(); else connect(); });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", function (event) { if (event.persisted) connect(); });

  window.forge = {
    $: $, all: all, keep: keep, kept: kept, setTheme: setTheme, tellChosen: tellChosen,
    togglePause: function () { setPace(paused ? (kept("pace") === "off" ? "0" : kept("pace") || "0") : "off"); }
  };

  document.addEventListener("DOMContentLoaded", function () {
    $("select[data-do=theme]").value = kept("theme") || "system";
    $("#drawer").addEventListener("close", function () { unwatch($("#drawer-body")); });
    var pages = $(".side .pages"), current = $("a[aria-current]", pages);
    if (current) pages.scrollLeft = current.offsetLeft - 32;
    tellTimes(document);
    setInterval(function () { tellTimes(document); }, 1000);
    var beat = 0;
    setInterval(function () { beat += 1; if (every && beat % every === 0) flush(); }, 1000);
    all("#notices .notice").forEach(function (one) { setTimeout(function () { one.remove(); }, 8000); });
    setPace(kept("pace") || "0");
  });
})();
