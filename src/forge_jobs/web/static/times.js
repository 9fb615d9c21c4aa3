// Times: how long ago, and the moment itself, all in one time zone of the reader's choice.
(function () {
  "use strict";

  var MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" "), chosen = "local";
  try { chosen = localStorage.getItem("forge.zone") || "local"; } catch (_) { /* storage may be blocked */ }

  function two(number) { return (number < 10 ? "0" : "") + number; }

  // minutes ahead of UTC at that moment
  function offset(at) {
    if (chosen === "utc") return 0;
    if (chosen === "server") return Number(document.documentElement.dataset.serverOffset) || 0;
    return -at.getTimezoneOffset();
  }

  // a date whose UTC parts are those of the zone
  function shifted(at) { return new Date(at.getTime() + offset(at) * 60000); }

  function suffix() { return chosen === "utc" ? " UTC" : chosen === "server" ? " server time" : ""; }

  function clock(at) {
    var in_zone = shifted(at);
    return two(in_zone.getUTCHours()) + ":" + two(in_zone.getUTCMinutes()) + ":" + two(in_zone.getUTCSeconds());
  }

  function day(at) { var in_zone = shifted(at); return in_zone.getUTCDate() + " " + MONTHS[in_zone.getUTCMonth()]; }

  function full(at) { return shifted(at).toISOString().slice(0, 19).replace("T", " ") + suffix(); }

  // beside "3 h ago": the clock of today, else the day
  function beside(at, now) {
    return day(at) === day(now) && Math.abs(now - at) < 86400000 ? clock(at) : day(at) + " " + clock(at).slice(0, 5);
  }

  function ago(seconds) {
    var future = seconds < 0, left = Math.abs(seconds), text;
    if (left < 1) return "now";
    if (left < 60) text = Math.floor(left) + " s";
    else if (left < 3600) text = Math.floor(left / 60) + " min";
    else if (left < 86400) text = Math.floor(left / 3600) + " h " + Math.floor(left % 3600 / 60) + " min";
    else text = Math.floor(left / 86400) + " d " + Math.floor(left % 86400 / 3600) + " h";
    return future ? "in " + text : text + " ago";
  }

  function set(node, name, value) { if (node.getAttribute(name) !== value) node.setAttribute(name, value); }

  function update(from) {
    var now = new Date();
    Array.prototype.forEach.call((from || document).querySelectorAll("time[datetime]"), function (one) {
      var at = new Date(one.getAttribute("datetime")), age = (now - at) / 1000, text;
      set(one, "title", full(at));
      if (one.dataset.full !== undefined) {
        text = full(at);
      } else if (one.dataset.clock !== undefined) {
        text = clock(at) + "." + String(at.getUTCMilliseconds() + 1000).slice(1);
      } else {
        // an expected end is shown as "now" until the next update removes it
        text = age > 0 && one.dataset.until !== undefined ? "now" : ago(age);
        set(one, "data-beside", beside(at, now));
      }
      if (one.textContent !== text) one.textContent = text;
    });
  }

  function setZone(value) {
    chosen = value;
    try { localStorage.setItem("forge.zone", value); } catch (_) { /* storage may be blocked */ }
    update(document);
  }

  window.forgeTimes = {
    update: update, setZone: setZone, zone: function () { return chosen; }, clock: clock,
    // for axes: hours and minutes, and the day
    minute: function (at) { return clock(at).slice(0, 5); }, day: day,
    // uPlot reads the local parts of a date: give it one whose local parts are those of the zone
    local: function (at) { return new Date(at.getTime() + (offset(at) + at.getTimezoneOffset()) * 60000); }
  };
})();
