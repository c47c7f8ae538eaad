// One accent, one second colour, one warning colour; everything else is ink on paper. Both schemes define the same
// eleven colours.
#include "pipelines/report_assets.h"

namespace loom {

const char* const kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #fcfcfa; --raised: #f3f3ef; --line: #e3e3dd; --grid: #ebebe6; --ink: #1d1e20; --soft: #5d6066; --faint: #8b8e94;
  --a: #2a5ea8; --b: #b9661c; --bad: #b3372f; --bad-wash: #b3372f14; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #131416; --raised: #1b1c1f; --line: #2c2e32; --grid: #232528; --ink: #e9e8e4; --soft: #a5a7ac; --faint: #777a80;
  --a: #82b1f2; --b: #e3a365; --bad: #f08b80; --bad-wash: #f08b801c; } }
* { box-sizing: border-box; margin: 0; }
html { -webkit-text-size-adjust: 100%; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; padding: clamp(20px, 4.5vw, 56px) clamp(18px, 5vw, 48px) 64px; }
main, footer { max-width: 1040px; margin: 0 auto; }
h1 { font-size: clamp(26px, 4.4vw, 38px); line-height: 1.15; font-weight: 650; letter-spacing: -.018em; overflow-wrap: anywhere; }
h2 { font-size: 17px; line-height: 1.3; font-weight: 620; letter-spacing: -.005em; }
section { margin-top: clamp(40px, 6vw, 60px); }
section > header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; border-top: 1px solid var(--line); padding-top: 14px; margin-bottom: 20px; }
section > header p { color: var(--soft); font-size: 14px; }
.state { display: flex; align-items: center; gap: 8px; color: var(--soft); font-size: 13.5px; margin-bottom: 10px; }
.state i { width: 8px; height: 8px; border-radius: 50%; background: var(--faint); }
.state.running i { background: var(--a); }
.lead { color: var(--soft); font-size: 16.5px; margin-top: 8px; max-width: 62ch; text-wrap: balance; }
.track { height: 3px; border-radius: 2px; background: var(--line); margin-top: 26px; overflow: hidden; }
.track i { display: block; height: 100%; background: var(--a); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(142px, 1fr)); gap: 22px 28px; margin-top: 26px; }
.numbers dt { color: var(--soft); font-size: 13.5px; }
.numbers dd { font-size: 25px; line-height: 1.25; font-weight: 560; letter-spacing: -.015em; white-space: nowrap; }
.numbers small { display: block; color: var(--faint); font-size: 13px; font-weight: 400; letter-spacing: 0; line-height: 1.35; white-space: normal; margin-top: 2px; }
.numbers .main dd { color: var(--a); }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 34px 40px; }
.chart { min-width: 0; }
.chart.wide { grid-column: 1 / -1; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 18px; font-size: 13.5px; color: var(--soft); margin-bottom: 10px; padding-right: 14px; }
figcaption em { font-style: normal; color: var(--faint); margin-left: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 0 18px; }
.key { white-space: nowrap; }
.key b { color: var(--ink); font-weight: 560; }
.key i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 7px; vertical-align: middle; position: relative; top: -1px; }
.key.a i { background: var(--a); } .key.b i { background: var(--b); }
.plot { display: grid; grid-template-columns: 48px minmax(0, 1fr); padding-right: 14px; }
.area { position: relative; height: 150px; touch-action: pan-y; }
.wide .area { height: clamp(210px, 30vw, 290px); }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; clip-path: inset(0 -4px); }
.area path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.grid { stroke: var(--grid); stroke-width: 1px; }
.line { stroke-width: 1.6px; } .dots { stroke-width: 6px; stroke-linecap: round; }
.line.a, .dots.a { stroke: var(--a); } .line.b, .dots.b { stroke: var(--b); }
.area path.band { opacity: .17; } .area path.band.a { fill: var(--a); } .area path.band.b { fill: var(--b); }
.y, .x { position: relative; color: var(--faint); font-size: 12px; line-height: 1; }
.y span { position: absolute; right: 10px; transform: translateY(-50%); white-space: nowrap; }
.x { grid-column: 2; height: 22px; }
.x span { position: absolute; top: 9px; transform: translateX(-50%); white-space: nowrap; }
.cursor { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--faint); pointer-events: none; }
.filter { margin-left: auto; display: flex; gap: 2px; font-size: 13.5px; }
.filter input { position: absolute; opacity: 0; }
.filter label { padding: 3px 11px; border-radius: 6px; color: var(--soft); cursor: pointer; }
.filter input:checked + label { background: var(--raised); color: var(--ink); }
.filter input:focus-visible + label { outline: 2px solid var(--a); }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(148px, 1fr)); gap: 26px 20px; list-style: none; padding: 0; }
section:has(#only-wrong:checked) .right { display: none; }
.samples img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--raised); border-radius: 6px; }
.samples img.small { image-rendering: pixelated; }
.samples p { font-size: 14px; line-height: 1.4; margin-top: 8px; overflow-wrap: anywhere; }
.samples .truth { color: var(--soft); font-size: 13px; margin-top: 2px; }
.samples .tag { color: var(--faint); }
.wrong img { outline: 2px solid var(--bad); outline-offset: 2px; }
.wrong .tag { color: var(--bad); }
mark { color: var(--bad); background: var(--bad-wash); border-radius: 3px; padding: 0 3px; margin: 0 -3px; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 7px 26px; font-size: 14.5px; }
.facts dt { color: var(--soft); } .facts dd { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 14.5px; }
td { padding: 5px 0; vertical-align: top; overflow-wrap: anywhere; } td.n { text-align: right; padding-right: 22px; }
pre { background: var(--raised); border-radius: 8px; padding: 18px 20px; overflow-x: auto; font: 13px/1.6 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; tab-size: 2; }
pre .k { color: var(--a); } pre .c { color: var(--faint); }
footer { margin-top: 56px; color: var(--faint); font-size: 13px; }
@media (max-width: 640px) {
  .charts { grid-template-columns: minmax(0, 1fr); } .plot { grid-template-columns: 46px minmax(0, 1fr); }
  .numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px 20px; } .numbers dd { font-size: 22px; }
  .samples { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 22px 16px; } .filter { margin-left: -11px; width: 100%; }
  .facts { grid-template-columns: minmax(0, 1fr); gap: 0; } .facts dd { margin-bottom: 10px; } }
@media print { body { padding: 0; } .filter { display: none; } .samples li, .chart { break-inside: avoid; } }
)css";

// Moves a line under the pointer and puts the values there into the legend.
const char* const kReportScript = R"js(
for (const figure of document.querySelectorAll('.chart')) {
  const area = figure.querySelector('.area'), keys = [...figure.querySelectorAll('.key b')];
  const title = figure.querySelector('.name'), name = title.innerHTML, last = keys.map(k => k.textContent);
  const series = JSON.parse(figure.querySelector('script').textContent);
  const cursor = document.createElement('div');
  cursor.className = 'cursor';
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
    return x - xs[low] < xs[high] - x ? low : high;
  };
  area.addEventListener('pointermove', event => {
    const box = area.getBoundingClientRect(), x = (event.clientX - box.left) / box.width;
    const at = nearest(series[0].x, x);
    cursor.style.left = series[0].x[at] * 100 + '%';
    area.append(cursor);
    title.textContent = 'step ' + series[0].step[at].toLocaleString('en');
    series.forEach((s, i) => { keys[i].textContent = s.value[nearest(s.x, series[0].x[at])]; });
  });
  area.addEventListener('pointerleave', () => {
    cursor.remove();
    title.innerHTML = name;
    keys.forEach((k, i) => { k.textContent = last[i]; });
  });
}
)js";

}  // namespace loom
