// The demo's chat: what a person writes goes to the fake Telegram; what happens comes back by asking
// again and again, a second at most per question. Everything shown is set as text, never as markup.
(function () {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const TRIES = ["pending", "failed", "scheduled", "held"];
  let bot = "echo";
  let asked = 0;
  let due = null;

  // ---------------------------------------------------------------- theme

  const theme = $("theme");
  function dress(name) {
    if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  }
  try { theme.value = localStorage.getItem("forge.theme") || "system"; } catch (_) { /* closed */ }
  dress(theme.value);
  theme.addEventListener("change", () => {
    dress(theme.value);
    try { localStorage.setItem("forge.theme", theme.value); } catch (_) { /* closed */ }
  });

  // ---------------------------------------------------------------- asking

  async function ask(path, body) {
    const options = body === undefined ? {} : {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    };
    const answer = await fetch(path, options);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || String(answer.status));
    return found;
  }

  function trouble(text) {
    $("trouble").textContent = text;
    $("trouble").hidden = !text;
  }

  async function act(path, body) {
    try {
      await ask(path, body);
      trouble("");
    } catch (error) {
      trouble(error.message);
    }
  }

  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  async function follow() {
    let after = 0;
    const mine = asked;
    while (mine === asked) {
      try {
        const found = await ask(`/api/live?bot=${bot}&after=${after}`);
        if (mine !== asked) return;
        after += found.entries.length;
        for (const entry of found.entries) show(entry);
        tell(found);
        trouble("");
        if (!after) await pause(500);
      } catch (_) {
        trouble("The demo does not answer; trying again …");
        await pause(1000);
      }
      if (document.hidden) await pause(1000);
    }
  }

  // ---------------------------------------------------------------- the conversation

  function show(entry) {
    const log = $("log");
    const known = log.querySelector(`[data-message="${Number(entry.message.message_id) || 0}"]`);
    $("empty").hidden = true;
    if (entry.what === "edit" && known) {
      known.firstChild.textContent = entry.message.text || "";
      return;
    }
    if (entry.what === "delete") {
      if (known) known.remove();
      return;
    }
    if (entry.what !== "message") return;
    const item = document.createElement("li");
    item.className = entry.by === "user" ? "user" : "bot";
    item.dataset.message = entry.message.message_id;
    const text = document.createElement("span");
    text.textContent = entry.message.text || "";
    const time = document.createElement("time");
    const moment = new Date(entry.at / 1000);
    time.dateTime = moment.toISOString();
    time.textContent = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    item.append(text, time);
    $("lines").append(item);
    log.scrollTop = log.scrollHeight;
  }

  // ---------------------------------------------------------------- behind the scenes

  const WORDS = {
    pending: "Waits for a worker",
    scheduled: "Waits for its time",
    held: "Waits for its turn",
    running: "Is being handled",
    failed: "Failed, and is tried again",
    done: "Answered",
    dead: "Dead",
    cancelled: "Closed",
  };

  function span(seconds) {
    const s = Math.ceil(seconds);
    if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    if (s >= 60) return `${Math.floor(s / 60)} min ${s % 60} s`;
    return `${s} s`;
  }

  function tell(found) {
    const job = found.job;
    const fate = $("fate");
    fate.className = job ? job.status : "none";
    if (job) {
      const word = document.createElement("b");
      word.textContent = WORDS[job.status] || job.status;
      const tries = job.status === "done" ? "" : `, try ${job.attempts} of ${job.max_attempts}`;
      fate.replaceChildren(word, tries);
      $("job").href = `/jobs/jobs/${encodeURIComponent(job.id)}`;
    } else {
      fate.textContent = "None yet.";
    }
    $("error").hidden = !(job && job.error);
    $("error").textContent = job ? job.error : "";
    $("job").hidden = !job;
    due = job && TRIES.includes(job.status) && job.due_in_s > 0
      ? performance.now() + job.due_in_s * 1000 : null;
    count();
    $("service").className = found.service ? "up" : "down";
    $("service-word").textContent = found.service ? "It runs." : "It is stopped.";
    $("toggle").textContent = found.service ? "Stop the service" : "Start the service";
    $("toggle").dataset.wanted = found.service ? "" : "yes";
  }

  function count() {
    const left = due === null ? 0 : (due - performance.now()) / 1000;
    $("wait").hidden = $("skip").hidden = left <= 0;
    $("wait").textContent = `Next try in ${span(left)}.`;
  }
  setInterval(count, 500);

  // ---------------------------------------------------------------- acting

  function choose(name) {
    bot = name;
    asked += 1;
    for (const one of document.querySelectorAll("[data-bot]")) {
      one.setAttribute("aria-pressed", String(one.dataset.bot === name));
    }
    $("lines").replaceChildren();
    $("empty").hidden = false;
    follow();
  }

  for (const one of document.querySelectorAll("[data-bot]")) {
    one.addEventListener("click", () => choose(one.dataset.bot));
  }
  $("write").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (!text) return;
    $("text").value = "";
    await act("/api/messages", { bot, text });
    $("text").focus();
  });
  $("toggle").addEventListener("click", async () => {
    $("toggle").disabled = true;
    await act("/api/service", { running: $("toggle").dataset.wanted === "yes" });
    $("toggle").disabled = false;
  });
  $("skip").addEventListener("click", () => act("/api/skip", { bot }));

  choose("echo");
})();
