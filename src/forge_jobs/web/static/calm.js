// Calm lists: while somebody points at a list, has the focus in it, ticked a row or scrolled, its rows
// stay where they are. Their content goes on; new rows wait behind the button "37 new".
(function () {
  "use strict";

  // rows without ids have no place to keep
  var LISTS = "table.rows > tbody, .cards";
  var SCROLLED_PX = 80, OWN_ACTION_MS = 4000;
  // a page of updates that waits for the list to be let go, and the ids of its new rows
  var held = null, news = new Set(), more = false, freeUntil = 0;

  function all(query, from) { return Array.prototype.slice.call(from.querySelectorAll(query)); }

  function isTicked(row) { return row.querySelector("input[name=ids]:checked") !== null; }

  function isFrozen(list) {
    if (Date.now() < freeUntil || !list.querySelector(":scope > [id]")) return false;
    var drawer = document.getElementById("drawer"), inDrawer = drawer.contains(list);
    if (!inDrawer && document.querySelector("dialog[open]")) return true;
    if (!inDrawer && window.scrollY > SCROLLED_PX) return true;
    return list.matches(":hover") || list.contains(document.activeElement) || isTicked(list);
  }

  // a row that the newest page does not have any more: shown as it was
  function keptRow(row) {
    var kept = row.cloneNode(true);
    kept.classList.add("aged");
    return kept;
  }

  // make the rows of the coming list those of the current one, with the coming content
  function freeze(list, coming) {
    var byId = new Map(), here = new Set(), added = 0;
    all(":scope > [id]", coming).forEach(function (row) { byId.set(row.id, row); });
    var rows = Array.prototype.map.call(list.children, function (row) {
      here.add(row.id);
      return byId.get(row.id) || keptRow(row);
    });
    byId.forEach(function (_, id) { if (!here.has(id)) { news.add(id); added += 1; } });
    if (added && added === byId.size) more = true;
    coming.replaceChildren.apply(coming, rows);
  }

  // ticked rows never leave
  function keepTicked(list, coming) {
    all(":scope > [id]", list).forEach(function (row) {
      if (isTicked(row) && !coming.querySelector("#" + CSS.escape(row.id))) coming.append(keptRow(row));
    });
  }

  // the HTML to show now for the HTML of the newest state
  function prepare(view, html) {
    var page = document.createElement("template"), frozen = false;
    page.innerHTML = html;
    var lists = all(LISTS, view), coming = all(LISTS, page.content);
    if (lists.length !== coming.length) return html;
    var main = view.id === "view";
    if (main && held === null) { news.clear(); more = false; }
    lists.forEach(function (list, at) {
      if (isFrozen(list)) { frozen = true; freeze(list, coming[at]); } else keepTicked(list, coming[at]);
    });
    if (main) {
      held = frozen ? html : null;
      if (!frozen) { news.clear(); more = false; }
      tell();
    }
    return page.innerHTML;
  }

  function tell() {
    var button = document.getElementById("fresh"), text = news.size ? news.size + (more ? "+" : "") + " new" : "";
    if (!button || button.textContent === text) return;
    var said = document.getElementById("fresh-said");
    // said once, not at every number
    if (!text || !button.textContent) said.textContent = text && "There are new rows.";
    button.textContent = text;
  }

  function letGo(ms) {
    freeUntil = Date.now() + ms;
    if (held !== null) window.forge.show(document.getElementById("view"), held);
  }

  // the newest state, once the reader has let go of the list
  function check() {
    var view = document.getElementById("view");
    if (held !== null && !all(LISTS, view).some(isFrozen)) window.forge.show(view, held);
  }

  document.addEventListener("click", function (event) {
    if (event.target.id !== "fresh") return;
    window.scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
    letGo(50);
  });
  setInterval(check, 500);

  window.forgeCalm = {
    prepare: prepare,
    // what the reader did himself shows at once, wherever the pointer is
    showOwnAction: function () { letGo(OWN_ACTION_MS); }
  };
})();
