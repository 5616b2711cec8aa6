// Builds the page into ../src/loca/serving/page: one script, one style sheet, the licences and the hashes of all.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const out = new URL("../src/loca/serving/page/", import.meta.url).pathname;
const packages = ["preact", "htm"];

mkdirSync(out, { recursive: true });
await build({
  entryPoints: { explorer: "src/main.js" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  outdir: out,
  legalComments: "none",
});
await build({ entryPoints: ["src/explorer.css"], minify: true, outdir: out, legalComments: "none" });
copyFileSync("index.html", `${out}index.html`);
const licences = packages.map((name) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  return `${name} ${version} (${license})\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`;
});
writeFileSync(
  `${out}LICENCES.txt`,
  `The script explorer.js has these packages in it:\n\n${licences.join(`\n${"-".repeat(78)}\n\n`)}`,
);
const names = ["LICENCES.txt", "explorer.css", "explorer.js", "index.html"];
const sums = names.map((name) => {
  const sum = createHash("sha256")
    .update(readFileSync(out + name))
    .digest("hex");
  return `${sum}  ${name}\n`;
});
writeFileSync(`${out}SHA256SUMS`, sums.join(""));
