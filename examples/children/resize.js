// A program for a worker pool, in JavaScript: pretends to resize pictures.
const lines = require("node:readline").createInterface({ input: process.stdin });

const send = (line) => process.stdout.write(JSON.stringify(line) + "\n");

lines.on("line", (line) => {
  const { id, payload } = JSON.parse(line);
  const { width, height, to } = payload;
  if (!(width > 0)) {
    send({ id, status: "dead", message: "width must be a positive number" });
    return;
  }
  send({ id, progress: 0.5, note: "half of the pixels" });
  send({ id, status: "ok", result: { width: to, height: Math.floor((height * to) / width) } });
});

send({ ready: true });
