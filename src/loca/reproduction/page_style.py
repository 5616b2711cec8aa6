"""How the page looks: one style sheet for screens wide and narrow, light and dark, and for paper."""

from __future__ import annotations

STYLE = """\
:root {
  color-scheme: light dark;
  --ground: #ffffff; --ink: #1c1e21; --quiet: #555b63; --line: #d9dce0; --band: #f4f5f7; --link: #0b57a4;
  --better: #0b5a8f; --worse: #a23b00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15171b; --ink: #e6e8eb; --quiet: #a9afb8; --line: #3a4048; --band: #1f2329; --link: #86bdff;
    --better: #7cc4ff; --worse: #ffab7a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, system-ui, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 1.1rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .35rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .7rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 0 0 .4rem; }
p { margin: 0 0 .7rem; max-width: 52rem; }
a { color: var(--link); text-underline-offset: .15em; }
ul, ol { margin: 0 0 .8rem; padding-left: 1.2rem; }
li { margin-bottom: .3rem; }
pre {
  margin: .4rem 0 .8rem; padding: .55rem .7rem; overflow-x: auto; background: var(--band);
  border: 1px solid var(--line); border-radius: 4px; font-size: .86rem; line-height: 1.45;
}
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
.quiet, .note { color: var(--quiet); font-size: .9rem; }
.gains + .note { max-width: 72rem; font-size: .85rem; }
.lead { font-size: 1.06rem; max-width: none; margin-bottom: .8rem; text-wrap: pretty; }

table { border-collapse: collapse; font-size: .875rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .1rem 0 .35rem; white-space: nowrap; }
th, td { padding: .28rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
table.words th, table.words td { text-align: left; vertical-align: top; white-space: normal; min-width: 8.5rem; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--quiet); }
tbody th { font-weight: 400; }
tbody tr:hover { background: var(--band); }
.scroll { overflow-x: auto; max-width: 100%; margin: 0 0 .7rem; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }

.gains table { width: 100%; line-height: 1.32; }
.gains caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.gains th, .gains td { text-align: left; vertical-align: top; padding: .32rem .55rem; }
.gains tbody th:first-child, .gains thead tr:first-child th:first-child { padding-left: .2rem; }
.gains thead th { vertical-align: bottom; }
.gains thead .clean, .gains thead .paper { vertical-align: top; }
.gains thead .over { border-bottom-color: var(--line); }
.gains tbody th b { display: block; font-size: 1.08em; }
.gains .clean { border-left: 1px solid var(--line); }
.gains .over { border-left: 1px solid var(--line); }
.gains thead small { font-weight: 400; white-space: normal; max-width: 6.5rem; }
.gains small { display: block; font-size: .915em; color: var(--quiet); }
.gains .figure { font-size: 1.08em; }
.gains td.paper { background: var(--band); }
.gains td.clean .figure { font-weight: 600; }
.better .word { color: var(--better); font-weight: 600; }
.worse .word { color: var(--worse); font-weight: 600; }
.undecided .word, .equal .word { color: var(--quiet); }

.kinds { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2rem; }
.kinds ul { padding-left: 1rem; }
.kinds li { margin-bottom: .55rem; }
.kinds small { display: block; }
.findings { list-style: none; padding: 0; max-width: 52rem; }
.findings b { font-weight: 600; }
.matches b { color: var(--better); }
.differs b { color: var(--worse); }
.found b { color: var(--quiet); }
article { margin: 0 0 2.6rem; }
.picture { background: #ffffff; border: 1px solid var(--line); border-radius: 4px; padding: .6rem; }
.picture svg { display: block; width: 100%; height: auto; margin: 0 auto; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2.5rem; }
.facts table { width: 100%; }
.facts th, .facts td { white-space: normal; vertical-align: top; }

@media screen and (max-width: 860px) {
  main { padding: .8rem 1rem 3rem; }
  h1 { font-size: 1.35rem; }
  .gains thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .gains table, .gains tbody { display: block; }
  .gains tbody tr { display: grid; grid-template-columns: 1fr 1fr; padding: .5rem 0; }
  .gains tbody tr:hover { background: none; }
  .gains tbody th:first-child { grid-column: 1 / -1; padding: .2rem 0; border-bottom: 0; }
  .gains tbody th b { display: inline; font-size: 1rem; margin-right: .4rem; }
  .gains tbody td { white-space: normal; border-left: 0; padding: .3rem .5rem; }
  .gains tbody td.ndcg { grid-column: 1 / -1; padding: 0 0 .35rem; }
  .gains td[data-column]::before {
    content: attr(data-column); display: block; font-size: .75rem; color: var(--quiet);
  }
  .gains td.ndcg small, .gains td.ndcg::before { display: inline; margin-right: .6rem; font-size: .8rem; }
}
@media print {
  :root { --ground: #fff; --ink: #000; --quiet: #444; --line: #bbb; --band: #f4f4f4; --link: #000;
    --better: #0b5a8f; --worse: #a23b00; }
  html, body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .contents { display: none; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
  .gains table { font-size: 7pt; }
  .gains th, .gains td { padding: .2rem .3rem; }
  pre { white-space: pre-wrap; }
  .picture { border: 0; padding: 0; }
  .picture svg { min-width: 0 !important; }
  h2, h3, caption { break-after: avoid; }
  tr, .picture, .gains, li { break-inside: avoid; }
}
"""
