// Charts: a figure carries its numbers in data-chart; the server changes them, this draws them again.
(function () {
  "use strict";

  var COLOURS = ["--info", "--good", "--warn", "--bad", "--wait", "--soft"];
  var drawn = new WeakMap();
  var shared = window.uPlot ? window.uPlot.sync("forge") : null;

  function colour(name) {
    // light-dark() is resolved only on a property that takes a colour
    var probe = document.createElement("span");
    probe.style.color = "var(" + name + ")";
    document.body.appendChild(probe);
    var value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function options(figure, data, width) {
    var names = Object.keys(data.series);
    var axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    return {
      width: width,
      height: Number(figure.dataset.height || 220),
      cursor: { sync: shared ? { key: shared.key } : undefined, drag: { x: true, y: false, setScale: false } },
      scales: { y: { range: function (_, low, high) { return [0, Math.max(high * 1.1, 1)]; } } },
      axes: [axis, Object.assign({ size: 56, values: data.unit === "s" ? function (_, ticks) { return ticks.map(function (t) { return t + " s"; }); } : undefined }, axis)],
      series: [{}].concat(names.map(function (name, place) {
        return { label: name, stroke: colour(COLOURS[place % COLOURS.length]), width: 2, points: { show: false } };
      })),
      hooks: { setSelect: [function (plot) { zoom(figure, plot); }] }
    };
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
    var text = figure.dataset.chart, plot = figure.querySelector(".plot"), before = drawn.get(plot);
    if (!plot || !window.uPlot || (before && before.text === text)) return;
    var data = JSON.parse(text), rows = [data.at].concat(Object.values(data.series));
    if (before && before.names === Object.keys(data.series).join()) {
      before.text = text;
      before.plot.setData(rows);
      return;
    }
    if (before) before.plot.destroy();
    var made = new window.uPlot(options(figure, data, plot.clientWidth || 600), rows, plot);
    drawn.set(plot, { plot: made, text: text, names: Object.keys(data.series).join() });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", figure.dataset.summary || "Chart");
  }

  function drawAll(again) {
    document.querySelectorAll("figure.chart").forEach(function (figure) {
      if (again) {
        var plot = figure.querySelector(".plot"), before = drawn.get(plot);
        if (before) { before.plot.destroy(); drawn.delete(plot); }
      }
      draw(figure);
    });
  }

  window.forgeCharts = { draw: drawAll };
  document.addEventListener("DOMContentLoaded", function () { drawAll(false); });
  window.addEventListener("resize", function () {
    document.querySelectorAll("figure.chart .plot").forEach(function (plot) {
      var kept = drawn.get(plot);
      if (kept) kept.plot.setSize({ width: plot.clientWidth, height: kept.plot.height });
    });
  });
})();
