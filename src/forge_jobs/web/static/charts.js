// Charts: a figure holds its data in data-chart; live updates change it, and this redraws.
(function () {
  "use strict";

  var pinned = null;
  var TONES = ["info", "good", "wait", "warn", "bad", "soft"];
  var drawn = new WeakMap();
  var clock = { format: window.forgeTimes.minute }, day = { format: window.forgeTimes.day };

  function colour(name) {
    // light-dark() is resolved only on a property that takes a colour
    var probe = document.createElement("span");
    probe.style.color = "var(--" + name + ")";
    document.body.appendChild(probe);
    var value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function translucent(value) { return value.replace("rgb(", "rgba(").replace(")", ", 0.10)"); }

  function formatValue(value, unit) {
    if (value === null || value === undefined) return "–";
    if (unit === "s") return value < 1 ? +(value * 1000).toPrecision(3) + " ms" : +value.toPrecision(3) + " s";
    if (unit === "bytes") return value < 1073741824 ? (value / 1048576).toFixed(value < 10485760 ? 1 : 0) + " MiB" : (value / 1073741824).toFixed(1) + " GiB";
    if (unit === "cores") return value.toFixed(2);
    if (unit === "share") return (value * 100).toFixed(0) + " %";
    return value.toLocaleString();
  }

  // ---------------------------------------------------------------- the open point

  // the point that has not ended is not part of the line: it is drawn dashed, counts scaled to a full one
  function isOpen(data, index) { return data.open !== null && data.open !== undefined && index >= data.open; }
  function isBefore(data, name) { return (data.before || []).indexOf(name) >= 0; }

  function projected(data, value) {
    if (value === null || value === undefined || data.unit) return value;
    return data.elapsed >= 0.2 ? value / data.elapsed : null;
  }

  function rows(data) {
    return [data.at].concat(Object.keys(data.series).map(function (name) {
      var values = data.series[name];
      return isBefore(data, name) ? values : values.map(function (value, index) { return isOpen(data, index) ? null : value; });
    }));
  }

  function highest(data, high) {
    Object.keys(data.series).forEach(function (name) {
      data.series[name].forEach(function (value, index) { if (isOpen(data, index) && !isBefore(data, name)) high = Math.max(high, projected(data, value) || 0); });
    });
    return high;
  }

  function drawOpen(plot, data) {
    if (data.open === null || data.open === undefined || data.open < 1) return;
    var context = plot.ctx, from = data.open - 1, to = data.open;
    context.save();
    context.setLineDash([5, 5]);
    context.lineWidth = 2;
    Object.keys(data.series).forEach(function (name, index) {
      var values = data.series[name], end = projected(data, values[to]);
      if (isBefore(data, name) || values[from] === null || end === null || end === undefined || !plot.series[index + 1].show) return;
      context.strokeStyle = colour(data.tones[index] || TONES[index % TONES.length]);
      context.beginPath();
      context.moveTo(plot.valToPos(data.at[from], "x", true), plot.valToPos(values[from], "y", true));
      context.lineTo(plot.valToPos(data.at[to], "x", true), plot.valToPos(end, "y", true));
      context.stroke();
    });
    context.restore();
  }

  // where a new version of the workers appeared
  function drawMarks(plot, data) {
    if (!(data.marks || []).length) return;
    var context = plot.ctx, box = plot.bbox, ratio = window.devicePixelRatio || 1;
    context.save();
    context.strokeStyle = context.fillStyle = colour("soft");
    context.font = 11 * ratio + "px system-ui, sans-serif";
    data.marks.forEach(function (mark) {
      var at = plot.valToPos(mark[0], "x", true);
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(at, box.top);
      context.lineTo(at, box.top + box.height);
      context.stroke();
      var text = mark[1].slice(0, 24), fits = at + context.measureText(text).width + 8 * ratio < box.left + box.width;
      context.textAlign = fits ? "left" : "right";
      context.fillText(text, at + (fits ? 4 : -4) * ratio, box.top + 11 * ratio);
    });
    context.restore();
  }

  // the list of the jobs that were enqueued in a point
  function listJobs(figure, index) {
    var data = JSON.parse(figure.dataset.chart), address = new URL(figure.dataset.list, location.href);
    address.searchParams.set("from", stamp(data.at[index]));
    address.searchParams.set("until", stamp(data.at[index] + data.step));
    location.assign(address.href);
  }

  function stamp(seconds) { return new Date(seconds * 1000).toISOString().replace(".000Z", "Z"); }

  function shown(figure, name, index) {
    if (index === null || index === undefined) return "–";
    var data = JSON.parse(figure.dataset.chart), text = formatValue(data.series[name] && data.series[name][index], data.unit);
    return isOpen(data, index) && !isBefore(data, name) && text !== "–" ? text + (data.level ? " now" : " so far") : text;
  }

  // a value without adjacent values has no line: draw it as a point
  function isolated(plot, index) {
    var values = plot.data[index], found = [];
    values.forEach(function (value, at) {
      if (value !== null && (at === 0 || values[at - 1] === null) && (at === values.length - 1 || values[at + 1] === null)) found.push(at);
    });
    return found;
  }

  function moment(seconds) { var at = new Date(seconds * 1000); return day.format(at) + " " + clock.format(at); }

  // the full time axis, also while older points are still being read
  function ends(figure) {
    var span = JSON.parse(figure.dataset.chart).span;
    return [span[0], Math.max(span[1], span[0] + 60)];
  }

  function options(figure, data, width) {
    var names = Object.keys(data.series), line = colour("line"), soft = colour("soft");
    var axis = { stroke: soft, font: '12px "Inter Variable", system-ui, sans-serif', grid: { stroke: line, width: 1 }, ticks: { show: false } };
    return {
      width: width,
      tzDate: function (at) { return window.forgeTimes.local(new Date(at * 1000)); },
      height: Number(figure.dataset.height || 180),
      padding: [8, 18, 0, 0],
      cursor: {
        sync: { key: "forge", filters: { pub: function (type) { return type !== "mousedown" && type !== "mouseup"; } } },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 }
      },
      scales: { x: { range: function () { return ends(figure); } }, y: { range: function (_, low, high) { high = highest(JSON.parse(figure.dataset.chart), high || 0); return [0, data.unit === "share" ? 1 : high > 0 ? high * 1.12 : 1]; } } },
      axes: [
        Object.assign({ size: 34, gap: 8, space: 70, incrs: [5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800], values: function (_, splits, __, ___, step) { return splits.map(function (at) { return (step >= 86400 ? day : clock).format(new Date(at * 1000)); }); } }, axis),
        Object.assign({ size: 62, values: function (_, splits) { return splits.map(function (one) { return formatValue(one, data.unit); }); } }, axis)
      ],
      series: [{ label: "at", value: function (_, at) { return at === null || at === undefined ? "–" : moment(at); } }].concat(names.map(function (name, index) {
        var tone = colour(data.tones[index] || TONES[index % TONES.length]);
        var before = isBefore(data, name);
        return { label: name, stroke: before ? tone.replace("rgb(", "rgba(").replace(")", ", 0.6)") : tone, dash: before ? [2, 4] : undefined, fill: index === 0 ? translucent(tone) : undefined, width: before ? 1.5 : 2, spanGaps: true, points: { size: 5, fill: tone, filter: isolated }, value: function (_, __, ___, at) { return shown(figure, name, at); } };
      })),
      hooks: {
        setSelect: [function (plot) { zoom(figure, plot); }],
        setCursor: [function (plot) { announce(figure, plot); }],
        setLegend: [showNewest],
        draw: [function (plot) { var now = JSON.parse(figure.dataset.chart); drawOpen(plot, now); drawMarks(plot, now); }],
        ready: [function (plot) { pinnable(figure, plot); }]
      }
    };
  }

  // ---------------------------------------------------------------- crosshair

  function each(work) {
    document.querySelectorAll("figure.chart .plot").forEach(function (element) {
      var entry = drawn.get(element);
      if (entry) work(entry.plot, element);
    });
  }

  // pinned to a time, not to a position: it stays while newer points arrive
  function placeCrosshair(plot) {
    plot.cursor._lock = false;
    plot.root.classList.toggle("pinned", pinned !== null);
    if (pinned === null) return;
    plot.setCursor({ left: plot.valToPos(pinned, "x"), top: plot.over.clientHeight / 2 }, true, false);
    plot.cursor._lock = true;
  }

  function pin(at) {
    pinned = at;
    each(placeCrosshair);
    if (at === null) each(function (plot) { plot.setCursor({ left: -10, top: -10 }, true, false); });
  }

  function pinnable(figure, plot) {
    var from = 0;
    if (figure.dataset.list) plot.over.title = "Click to list the jobs enqueued then";
    plot.over.addEventListener("mousedown", function (event) { from = event.clientX; });
    plot.over.addEventListener("click", function (event) {
      var at = plot.cursor.idx;
      if (Math.abs(event.clientX - from) >= 4) return;
      if (figure.dataset.list && at !== null && at !== undefined) listJobs(figure, at);
      else pin(pinned === null && at !== null && at !== undefined ? plot.data[0][at] : null);
    });
  }

  // without a crosshair the legend shows the newest values
  function showNewest(plot) {
    var last = plot.data[0].length - 1;
    if ((plot.cursor.idx === null || plot.cursor.idx === undefined) && last >= 0 && plot.legend.idx !== last) plot.setLegend({ idx: last }, false);
  }

  // the values at the crosshair, for screen readers
  function announce(figure, plot) {
    var at = plot.cursor.idx, element = figure.querySelector(".plot");
    if (at === null || at === undefined || element !== document.activeElement) return;
    var data = JSON.parse(figure.dataset.chart), values = Object.keys(data.series).map(function (name) { return name + " " + shown(figure, name, at); });
    element.setAttribute("aria-valuenow", String(at));
    element.setAttribute("aria-valuetext", moment(data.at[at]) + ": " + values.join(", "));
  }

  // arrows move the crosshair, with Shift they select a span, Enter zooms or pins, Escape clears
  function onChartKey(event) {
    var entry = drawn.get(event.currentTarget), plot = entry && entry.plot, last = plot ? plot.data[0].length - 1 : -1;
    if (last < 0) return;
    var before = plot.cursor.idx, at = before === null || before === undefined ? last + 1 : before;
    var to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 10, PageDown: at + 10 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      to = Math.max(0, Math.min(last, to));
      if (event.shiftKey) span(plot, entry.from === undefined ? (entry.from = Math.min(at, last)) : entry.from, to); else { entry.from = undefined; span(plot, 0, 0); }
      pinned = plot.data[0][to];
      each(placeCrosshair);
    } else if (event.key === "Enter") {
      event.preventDefault();
      var figure = event.currentTarget.closest("figure");
      if (plot.select.width >= 8) zoom(figure, plot);
      else if (figure.dataset.list) listJobs(figure, Math.min(at, last));
      else pin(pinned === null ? plot.data[0][Math.min(at, last)] : null);
    } else if (event.key === "Escape") { entry.from = undefined; span(plot, 0, 0); pin(null); }
  }

  function span(plot, from, to) {
    var left = plot.valToPos(plot.data[0][Math.min(from, to)], "x"), right = plot.valToPos(plot.data[0][Math.max(from, to)], "x");
    plot.setSelect({ left: left, width: right - left, top: 0, height: plot.over.clientHeight }, false);
  }

  function zoom(figure, plot) {
    if (plot.select.width < 8) return;
    var from = plot.posToVal(plot.select.left, "x"), until = plot.posToVal(plot.select.left + plot.select.width, "x");
    var address = new URL(location.href);
    address.searchParams.delete("range");
    address.searchParams.set("from", new Date(from * 1000).toISOString());
    address.searchParams.set("until", new Date(until * 1000).toISOString());
    figure.dispatchEvent(new CustomEvent("forge:zoom", { bubbles: true, detail: address.href }));
  }

  function draw(figure) {
    var text = figure.dataset.chart, plot = figure.querySelector(".plot");
    if (!plot || !window.uPlot) return;
    var before = drawn.get(plot);
    if (before && before.text === text) return;
    var data = JSON.parse(text);
    if (!data.at.length) return;
    var names = Object.keys(data.series);
    if (before && before.names === names.join()) {
      before.text = text;
      before.plot.setData(rows(data));
      plot.setAttribute("aria-valuemax", String(data.at.length - 1));
      // uPlot applies the new scale in a microtask: move the crosshair after it
      queueMicrotask(function () { placeCrosshair(before.plot); });
    } else {
      if (before) before.plot.destroy();
      var made = new window.uPlot(options(figure, data, plot.clientWidth || 600), rows(data), plot);
      drawn.set(plot, { plot: made, text: text, names: names.join() });
      makeAccessible(figure, plot, data);
    }
    fillTable(figure);
  }

  function makeAccessible(figure, plot, data) {
    var facts = { role: "slider", tabindex: "0", "aria-label": figure.dataset.summary || "Chart", "aria-valuemin": "0", "aria-valuemax": String(data.at.length - 1), "aria-valuenow": String(data.at.length - 1), "aria-valuetext": "arrow keys read it" };
    if (!plot.hasAttribute("role")) plot.addEventListener("keydown", onChartKey);
    Object.keys(facts).forEach(function (name) { plot.setAttribute(name, facts[name]); });
    placeCrosshair(drawn.get(plot).plot);
  }

  // The same values as a table; filled only while it is open.
  function fillTable(figure) {
    var part = figure.querySelector("details.figures");
    if (!part || !part.open) return;
    var data = JSON.parse(figure.dataset.chart), names = Object.keys(data.series);
    var table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    ["at"].concat(names).forEach(function (name) {
      var cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.appendChild(cell);
    });
    data.at.map(function (at, index) { return [at, index]; }).reverse().forEach(function (pair) {
      var row = body.insertRow(), first = document.createElement("th");
      first.scope = "row";
      first.textContent = moment(pair[0]);
      row.appendChild(first);
      names.forEach(function (name) { row.insertCell().textContent = shown(figure, name, pair[1]); });
    });
    part.querySelector("div").replaceChildren(table);
  }

  function drawAll(again) {
    document.querySelectorAll("figure.chart").forEach(function (figure) {
      var plot = figure.querySelector(".plot"), before = plot && drawn.get(plot);
      if (again && before) { before.plot.destroy(); drawn.delete(plot); }
      draw(figure);
    });
  }

  window.forgeCharts = { draw: drawAll };
  document.addEventListener("DOMContentLoaded", function () { drawAll(false); });
  document.addEventListener("toggle", function (event) {
    if (event.target.matches && event.target.matches("details.figures")) fillTable(event.target.closest("figure"));
  }, true);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { drawAll(true); });
  window.addEventListener("resize", function () {
    document.querySelectorAll("figure.chart .plot").forEach(function (plot) {
      var entry = drawn.get(plot);
      if (entry) entry.plot.setSize({ width: plot.clientWidth, height: entry.plot.height });
    });
  });
})();
