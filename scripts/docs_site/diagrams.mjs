// Draws Mermaid diagrams: a JSON list of sources on stdin, a JSON list of SVG texts on stdout.
// The colours are names of custom properties, so that the drawing follows the page's theme.
import { readFileSync } from "node:fs";
import { renderMermaidSVG } from "beautiful-mermaid";

const options = {
  bg: "var(--color-background-primary)",
  fg: "var(--color-foreground-primary)",
  line: "var(--color-foreground-muted)",
  accent: "var(--color-brand-primary)",
  muted: "var(--color-foreground-secondary)",
  surface: "var(--color-background-secondary)",
  border: "var(--color-foreground-border)",
  font: "system-ui",
  transparent: true,
};
const sources = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(sources.map((source) => renderMermaidSVG(source, options))));
