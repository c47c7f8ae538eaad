// One accent, one second colour, one warning colour; everything else is ink on paper. Both schemes define the same
// colours; every text colour has a contrast of at least 4.5 on paper. t1 to t7 are kinds of time, areas and lines only.
#include "pipelines/report_assets.h"

namespace loom {

const char* const kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #fcfcfa; --raised: #f3f3ef; --line: #e3e3dd; --grid: #ecece7; --ink: #1d1e20; --soft: #585b61; --faint: #6d7077;
  --a: #2a5ea8; --b: #b05c12; --bad: #b3372f; --bad-wash: #b3372f14;
  --t1: var(--a); --t2: var(--b); --t3: #7b54a8; --t4: #86a3c8; --t5: #2f8a6d; --t6: var(--bad); --t7: #b9bab4; --k5: #2b8794; --k6: #8c7a1f; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #131416; --raised: #1c1d20; --line: #2c2e32; --grid: #232528; --ink: #e9e8e4; --soft: #abadb2; --faint: #8d9096;
  --a: #82b1f2; --b: #e3a365; --bad: #f08b80; --bad-wash: #f08b801f;
  --t3: #b796de; --t4: #6382ad; --t5: #6cc2a2; --t7: #4b4e54; --k5: #74c3cf; --k6: #cdbb5e; } }
.t1 { --c: var(--t1); } .t2 { --c: var(--t2); } .t3 { --c: var(--t3); } .t4 { --c: var(--t4); } .t5 { --c: var(--t5); } .t6 { --c: var(--t6); } .t7 { --c: var(--t7); }
.a { --c: var(--a); } .b { --c: var(--b); }
.k1 { --c: var(--a); } .k2 { --c: var(--b); } .k3 { --c: var(--t3); } .k4 { --c: var(--t4); } .k5 { --c: var(--k5); } .k6 { --c: var(--k6); }
* { box-sizing: border-box; margin: 0; }
html { -webkit-text-size-adjust: 100%; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; padding: clamp(22px, 4.5vw, 56px) clamp(18px, 5vw, 48px) 56px; }
main, footer { max-width: 1040px; margin: 0 auto; }
h1 { font-size: clamp(26px, 4.4vw, 38px); line-height: 1.15; font-weight: 650; letter-spacing: -.018em; overflow-wrap: anywhere; }
h2 { font-size: 17px; line-height: 1.3; font-weight: 620; letter-spacing: -.005em; }
section { margin-top: clamp(40px, 5.5vw, 56px); }
section > header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; border-top: 1px solid var(--line); padding-top: 14px; margin-bottom: 22px; }
section > header p { color: var(--soft); font-size: 14px; }
.state { display: flex; flex-wrap: wrap; align-items: center; gap: 0 9px; color: var(--soft); font-size: 13.5px; margin-bottom: 10px; }
.state i { width: 8px; height: 8px; border-radius: 50%; background: var(--faint); }
.state.running i { background: var(--a); box-shadow: 0 0 0 3px color-mix(in srgb, var(--a) 22%, transparent); }
.state.failed i { background: var(--bad); } .state.failed span { color: var(--bad); }
.state time { color: var(--faint); margin-left: auto; }
.lead { color: var(--soft); font-size: 16px; margin-top: 9px; max-width: 68ch; text-wrap: pretty; white-space: pre-line; }
.note { color: var(--bad); margin-top: 12px; max-width: 76ch; overflow-wrap: anywhere; }
.track { height: 3px; border-radius: 2px; background: var(--line); margin-top: 26px; overflow: hidden; }
.track i { display: block; height: 100%; background: var(--a); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 22px 28px; margin-top: 28px; }
.numbers dt { color: var(--soft); font-size: 13.5px; }
.numbers dd { font-size: 25px; line-height: 1.25; font-weight: 560; letter-spacing: -.015em; white-space: nowrap; }
.numbers small { display: block; color: var(--faint); font-size: 13px; font-weight: 400; letter-spacing: 0; line-height: 1.35; white-space: normal; margin-top: 2px; }
.numbers .main dd { color: var(--a); } .numbers .main small { color: var(--faint); }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 36px 40px; }
.chart { min-width: 0; display: flex; flex-direction: column; }
.chart.wide { grid-column: 1 / -1; }
figcaption { flex: 1; display: flex; flex-wrap: wrap; align-content: flex-start; justify-content: space-between; gap: 2px 18px; font-size: 13.5px; color: var(--soft); margin-bottom: 12px; }
figcaption em { font-style: normal; color: var(--faint); margin-left: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 0 18px; }
.key { white-space: nowrap; }
.key b { color: var(--ink); font-weight: 560; }
.range { color: var(--faint); margin-left: 6px; } .range:empty { margin: 0; }
.key i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 7px; vertical-align: middle; position: relative; top: -1px; }
.key i { background: var(--c); }
.plot { display: grid; grid-template-columns: 62px minmax(0, 1fr); padding-right: 4px; }
.area { position: relative; height: 150px; touch-action: pan-y; border-radius: 2px; }
.area:focus-visible { outline: 2px solid var(--a); outline-offset: 6px; }
.wide .area { height: clamp(210px, 28vw, 280px); }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; }
.area path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.grid { stroke: var(--grid); stroke-width: 1px; }
.line { stroke-width: 1.6px; } .dots { stroke-width: 6px; stroke-linecap: round; }
.line, .dots { stroke: var(--c); }
.area path.band { opacity: .28; stroke-width: 1px; fill: var(--c); stroke: var(--c); }
.y, .x { position: relative; color: var(--faint); font-size: 12px; line-height: 1; }
.y span { position: absolute; right: 10px; transform: translateY(-50%); white-space: nowrap; }
.x { grid-column: 2; height: 22px; }
.x span { position: absolute; top: 9px; transform: translateX(-50%); white-space: nowrap; }
.x .end { transform: translateX(calc(4px - 100%)); }
.lanes { margin-bottom: 34px; min-width: 0; } .lanes .area { height: auto; } .lanes .y span { max-width: 58px; overflow: hidden; text-overflow: ellipsis; }
.lanes rect { fill: var(--c); } .lanes rect.row { fill: var(--raised); } .lanes rect.f { fill-opacity: .58; }
.lanes rect:hover { stroke: var(--ink); stroke-width: 1px; vector-effect: non-scaling-stroke; }
.lanes .key i { height: 10px; width: 10px; border-radius: 3px; top: 0; } .lanes .key i.f { opacity: .58; }
.strip .area { height: 84px; } .strip .plot { grid-template-columns: minmax(0, 1fr); } .strip .x { grid-column: 1; }
.area path.mark { stroke: var(--ink); stroke-width: 2px; }
.waits { list-style: none; padding: 0; margin-bottom: 26px; font-size: 14.5px; color: var(--soft); } .waits b { color: var(--ink); font-weight: 560; }
.cursor { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--faint); pointer-events: none; }
.filter { margin-left: auto; display: flex; gap: 2px; font-size: 13.5px; }
.filter input { position: absolute; opacity: 0; }
.filter label { padding: 3px 11px; border-radius: 6px; color: var(--soft); cursor: pointer; }
.filter input:checked + label { background: var(--raised); color: var(--ink); }
.filter input:focus-visible + label { outline: 2px solid var(--a); }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(148px, 1fr)); gap: 28px 22px; list-style: none; padding: 0; }
section:has(#only-wrong:checked) .right { display: none; }
.samples img, .samples .none { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--raised); border-radius: 6px; }
.samples .none { display: grid; place-items: center; color: var(--faint); font-size: 12.5px; }
.samples img.small { image-rendering: pixelated; }
.samples > li { min-width: 0; } .samples > li > div:last-child { margin-top: 9px; min-width: 0; }
.samples p { font-size: 14px; line-height: 1.42; overflow-wrap: anywhere; white-space: pre-line; }
.samples .prompt { color: var(--soft); font-size: 13px; margin-bottom: 4px; }
.samples .truth { color: var(--soft); font-size: 13px; margin-top: 2px; }
.tag { color: var(--faint); } .truth .tag { margin-right: 3px; }
.samples.rows { grid-template-columns: minmax(0, 1fr); gap: 0; }
.rows > li { display: grid; grid-template-columns: 168px minmax(0, 1fr); gap: 0 26px; padding: 20px 0; border-top: 1px solid var(--grid); }
.rows > li:first-child { border-top: 0; padding-top: 0; }
.rows > li > div:only-child { grid-column: 1 / -1; } .rows > li > div:last-child { margin-top: 0; max-width: 76ch; }
.rows .prompt, .rows .truth { font-size: 14px; } .rows .prompt { margin-bottom: 8px; } .rows .truth { margin-top: 8px; }
.rows img { aspect-ratio: auto; height: auto; max-height: 260px; }
details { margin-top: 5px; font-size: 13px; }
summary { color: var(--faint); cursor: pointer; width: fit-content; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "+ "; } details[open] summary::before { content: "– "; }
summary:hover { color: var(--soft); } summary:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; }
details ul { list-style: none; padding: 0; } details li { margin-top: 4px; color: var(--soft); overflow-wrap: anywhere; line-height: 1.4; }
mark { color: var(--bad); background: var(--bad-wash); border-radius: 3px; padding: 0 3px; margin: 0 -3px; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 0 40px; font-size: 14.5px; }
.facts div { display: grid; grid-template-columns: 132px minmax(0, 1fr); gap: 0 16px; padding: 6px 0; border-bottom: 1px solid var(--grid); }
.facts dt { color: var(--soft); } .facts dd { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 14.5px; width: 100%; }
td, th { padding: 7px 20px 7px 0; vertical-align: top; overflow-wrap: anywhere; text-align: left; font-weight: 400; border-bottom: 1px solid var(--grid); }
td:last-child, th:last-child { padding-right: 0; }
thead th { color: var(--soft); font-size: 13.5px; } tbody th { font-weight: 560; }
.plan td[data-name=layout] { width: 34%; }
.bar { display: flex; gap: 1px; height: 26px; border-radius: 5px; overflow: hidden; }
.bar i { background: var(--c); flex: none; }
.parts { display: flex; flex-wrap: wrap; gap: 5px 24px; list-style: none; padding: 0; margin: 13px 0 26px; font-size: 13.5px; color: var(--soft); }
.parts li { white-space: nowrap; } .parts b { color: var(--ink); font-weight: 560; margin: 0 3px; } .parts span { color: var(--faint); }
.parts i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; background: var(--c); }
.times { font-size: 13.5px; } .times td, .times th { padding: 6px 14px 6px 0; } .times th { overflow-wrap: normal; } .times td:last-child, .times th:last-child { padding-right: 0; }
.units { margin: 12px 0 34px; } .units table { margin-top: 10px; } .units tbody th { font-weight: 400; }
td.n, th.n { text-align: right; white-space: nowrap; }
table + .facts { margin-top: 28px; }
.skips td.n { width: 1%; padding-right: 22px; } .skips small { display: block; color: var(--faint); font-size: 13px; }
pre { background: var(--raised); border-radius: 8px; padding: 18px 20px; overflow-x: auto; font: 13px/1.6 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; tab-size: 2; }
pre .k { color: var(--a); } pre .c { color: var(--faint); }
footer { margin-top: 48px; color: var(--faint); font-size: 13px; }
@media (max-width: 640px) {
  .state time { margin-left: 17px; width: 100%; }
  .charts { grid-template-columns: minmax(0, 1fr); gap: 32px; } .plot { grid-template-columns: 54px minmax(0, 1fr); }
  .range { display: none; }
  .numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px 20px; } .numbers dd { font-size: 22px; }
  .samples { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 24px 16px; } .filter { margin-left: -11px; width: 100%; }
  .rows > li { grid-template-columns: minmax(0, 1fr); gap: 12px; } .rows img, .rows .none { width: 168px; }
  .facts div { grid-template-columns: 112px minmax(0, 1fr); }
  :is(.plan, .times) thead { display: none; } :is(.plan, .times), :is(.plan, .times) tbody { display: block; }
  :is(.plan, .times) tr { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 18px; padding: 12px 0; border-bottom: 1px solid var(--grid); }
  :is(.plan, .times) th, :is(.plan, .times) td { border: 0; padding: 0; } .plan td[data-name=layout] { width: auto; } :is(.plan, .times) th, .plan td[data-name=layout] { grid-column: 1 / -1; }
  :is(.plan, .times) td, :is(.plan, .times) td.n { text-align: left; display: flex; justify-content: space-between; gap: 10px; }
  :is(.plan, .times) td::before { content: attr(data-name); color: var(--soft); font-size: 13.5px; } }
@media print { body { padding: 0; } .filter, summary { display: none; } .samples li, .chart { break-inside: avoid; } }
)css";

// Moves a line under the pointer, or by the arrow keys, and puts the values there into the legend. A page of a run that
// goes on is read again when somebody comes back to it.
const char* const kReportScript = R"js(
for (const figure of document.querySelectorAll('.chart')) {
  const area = figure.querySelector('.area'), keys = [...figure.querySelectorAll('.key b')];
  const title = figure.querySelector('.name'), name = title.innerHTML, last = keys.map(k => k.textContent);
  const { low, high, curves } = JSON.parse(figure.querySelector('script').textContent);
  const ranges = keys.map(key => {
    const range = document.createElement('span');
    range.className = 'range';
    key.after(range);
    return range;
  });
  const cursor = document.createElement('div');
  cursor.className = 'cursor';
  let at = -1;
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (steps[mid] < step) low = mid; else high = mid; }
    return step - steps[low] < steps[high] - step ? low : high;
  };
  const show = index => {
    at = index;
    const step = curves[0].step[at];
    cursor.style.left = 100 * (step - low) / (high - low) + '%';
    area.append(cursor);
    title.textContent = 'step ' + step.toLocaleString('en');
    curves.forEach((c, i) => {
      const n = nearest(c.step, step);
      keys[i].textContent = c.value[n];
      ranges[i].textContent = c.range ? c.range[n] : '';
    });
  };
  const hide = () => {
    at = -1;
    cursor.remove();
    title.innerHTML = name;
    keys.forEach((k, i) => { k.textContent = last[i]; ranges[i].textContent = ''; });
  };
  area.addEventListener('pointermove', event => {
    const box = area.getBoundingClientRect();
    show(nearest(curves[0].step, low + (high - low) * (event.clientX - box.left) / box.width));
  });
  area.addEventListener('pointerleave', hide);
  area.addEventListener('blur', hide);
  area.addEventListener('keydown', event => {
    const end = curves[0].step.length - 1, from = at < 0 ? end : at;
    const to = { ArrowLeft: from - (at >= 0), ArrowRight: from + 1, Home: 0, End: end }[event.key];
    if (event.key === 'Escape') hide();
    if (to === undefined) return;
    event.preventDefault();
    show(Math.min(Math.max(to, 0), end));
  });
}
if (document.documentElement.dataset.state === 'running') {
  document.addEventListener('visibilitychange', () => { if (!document.hidden) location.reload(); });
}
)js";

}  // namespace loom
