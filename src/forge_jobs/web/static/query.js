// Completion in the query line of lists: names of filters, then their values.
(function () {
  "use strict";

  var MAX = 12, list = null, input = null;

  function all(query, from) { return Array.prototype.slice.call((from || document).querySelectorAll(query)); }

  // the word that the cursor is in: a name, or a name with a value
  function word() {
    var end = input.selectionStart, start = end;
    while (start > 0 && !/\s/.test(input.value[start - 1])) start -= 1;
    while (end < input.value.length && !/\s/.test(input.value[end])) end += 1;
    return { start: start, end: end, text: input.value.slice(start, end) };
  }

  // tags are not listed anywhere: those of the rows that are shown
  function shownTags() {
    return Array.from(new Set(all("table.rows th .tag").map(function (one) { return one.textContent; })));
  }

  function candidates(text) {
    var known = JSON.parse(input.dataset.complete), at = text.indexOf(":"), name = text.slice(0, at), values;
    if (at < 0) return Object.keys(known).filter(function (one) { return text && one.indexOf(text) === 0; }).map(function (one) { return one + ":"; });
    values = name === "tag" ? shownTags() : known[name] || [];
    return values.filter(function (one) { return one.toLowerCase().indexOf(text.slice(at + 1).toLowerCase()) >= 0; })
      .map(function (one) { return name + ":" + (/\s/.test(one) ? '"' + one + '"' : one); })
      .filter(function (one) { return one !== text; });
  }

  function close() {
    if (list) list.remove();
    list = null;
    if (!input) return;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    input.removeAttribute("aria-controls");
  }

  function open() {
    close();
    var found = candidates(word().text).slice(0, MAX);
    if (!found.length) return;
    list = document.createElement("ul");
    list.id = "completions";
    list.className = "completions";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Completions");
    found.forEach(function (text, at) {
      var line = document.createElement("li");
      line.id = "completion-" + at;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", "false");
      line.textContent = text;
      list.appendChild(line);
    });
    input.form.appendChild(list);
    input.setAttribute("aria-expanded", "true");
    input.setAttribute("aria-controls", "completions");
  }

  function selected() { return list && list.querySelector('[aria-selected="true"]'); }

  function move(step) {
    var lines = all("li", list), at = lines.indexOf(selected()), next = lines[(at + step + lines.length) % lines.length];
    if (at < 0) next = lines[step > 0 ? 0 : lines.length - 1];
    lines.forEach(function (one) { one.setAttribute("aria-selected", String(one === next)); });
    next.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", next.id);
  }

  function take(line) {
    var at = word(), text = line.textContent, goesOn = text.slice(-1) === ":";
    input.setRangeText(text + (goesOn ? "" : " "), at.start, at.end, "end");
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.focus();
  }

  document.addEventListener("focusin", function (event) {
    if (!event.target.dataset || event.target.dataset.complete === undefined) return;
    input = event.target;
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-expanded", "false");
  });
  document.addEventListener("focusout", function (event) { if (event.target === input) close(); });
  document.addEventListener("input", function (event) { if (event.target === input) open(); });
  document.addEventListener("keydown", function (event) {
    if (event.target !== input || !list) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
    else if (event.key === "Enter" && selected()) { event.preventDefault(); take(selected()); }
    else if (event.key === "Tab" && !event.shiftKey && (selected() || list.children.length === 1)) { event.preventDefault(); take(selected() || list.firstChild); }
    else if (event.key === "Escape") { event.preventDefault(); close(); }
  });
  // before the input loses the focus
  document.addEventListener("mousedown", function (event) {
    var line = event.target.closest && event.target.closest("#completions li");
    if (line) { event.preventDefault(); take(line); }
  });
})();
