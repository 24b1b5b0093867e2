import { html, STYLES, type Html } from '../../html-report/html.js';
import { SALE_LIMITS, type DemoOptions } from '../../options.js';
import { ALL_STRATEGIES, LOCK_BACKENDS, type Strategy } from '../../shop-facts.js';

const STRATEGY_NAMES: Readonly<Record<Strategy, string>> = {
  none: 'none: no protection',
  lock: 'lock: @DistributedLock',
  fenced: 'fenced: lock and token check',
  pessimistic: 'pessimistic: FOR UPDATE',
  optimistic: 'optimistic: version column',
  atomic: 'atomic: conditional UPDATE',
  setnx: 'setnx: naive, no expiry',
  'setnx-expiry': 'setnx-expiry: naive, no owner',
};

/** Of the table of the sales that have ended. */
const RESULT_HEAD = [
  'sale',
  'sold',
  'left',
  'oversold',
  'lost',
  'sent again',
  'stale refused',
  'locks lost',
  'standstill',
  'sold/s',
  'p99 ms',
  'faults',
];

/** The document of the live page, which its scripts fill, and its style sheet. */
export class LivePage {
  readonly document: string;
  readonly styles = `${STYLES.text}${LIVE_STYLES}`;

  constructor(options: DemoOptions) {
    this.document = documentOf(options);
  }
}

function documentOf(options: DemoOptions): string {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>Live: sell a stock, and break the shop</title>
        <link rel="icon" href="data:," />
        <link rel="stylesheet" href="/styles.css" />
        <script src="/charts/chart.umd.min.js" defer></script>
        <script src="/browser/main.js" type="module"></script>
      </head>
      <body>
        <main>
          <header class="top">
            <h1>Sell a stock from several processes, and break them</h1>
            <p id="connection" role="status">Connecting</p>
          </header>
          ${saleSection(options)} ${stockSection()}
          <div class="pair">${processSection()} ${lockSection()}</div>
          ${logSection()} ${resultSection()}
        </main>
      </body>
    </html>`.text;
}

function saleSection(options: DemoOptions): Html {
  const { strategies, backend } = options;
  const [strategy] = strategies.includes('fenced') ? ['fenced'] : strategies;
  return html`<section aria-labelledby="sale-title">
    <h2 id="sale-title">Sale</h2>
    <form id="sale-form">
      <label class="wide">
        Strategy
        <select name="strategy">
          ${ALL_STRATEGIES.map((name) => option(name, STRATEGY_NAMES[name], name === strategy))}
        </select>
      </label>
      <label>
        Locks kept in
        <select name="backend">
          ${LOCK_BACKENDS.map((name) => option(name, name, name === backend))}
        </select>
      </label>
      ${number('instances', 'Processes', options)} ${number('stock', 'Pieces in stock', options)}
      ${number('orders', 'Orders', options)} ${number('concurrency', 'Orders at once', options)}
      <div class="buttons wide">
        <button id="start" class="primary">Start the sale</button>
        <button id="stop" type="button" disabled>End it now</button>
      </div>
    </form>
    <p id="problem" role="alert"></p>
  </section>`;
}

function option(value: string, text: string, selected: boolean): Html {
  return selected
    ? html`<option value="${value}" selected>${text}</option>`
    : html`<option value="${value}">${text}</option>`;
}

function number(name: keyof typeof SALE_LIMITS, title: string, options: DemoOptions): Html {
  const [least, most] = SALE_LIMITS[name];
  return html`<label>
    ${title}
    <input
      name="${name}"
      type="number"
      inputmode="numeric"
      required
      min="${least}"
      max="${most}"
      value="${options[name]}"
    />
  </label>`;
}

function stockSection(): Html {
  return html`<section aria-labelledby="stock-title">
    <h2 id="stock-title">Stock</h2>
    <p id="caption" class="note">No sale yet.</p>
    <dl class="figures">
      ${figure('left', 'left in stock')} ${figure('accepted', 'sold')} ${figure('oversold', 'oversold')}
      ${figure('rate', 'orders sold/s')} ${figure('p99', 'p99, ms')} ${figure('out', 'refused: no stock')}
      ${figure('busy', 'refused: busy')} ${figure('errors', 'lost orders')}
    </dl>
    <ul class="legend">
      <li class="sold">pieces sold</li>
      <li class="left">stock left, as the database shows it</li>
      <li class="start">stock at the start</li>
    </ul>
    <div class="chart">
      <canvas
        id="course"
        role="img"
        aria-label="Pieces sold and stock left over time. The figures above have the last values."
      ></canvas>
    </div>
  </section>`;
}

function figure(id: string, title: string): Html {
  return html`<div>
    <dt>${title}</dt>
    <dd id="${id}">–</dd>
  </div>`;
}

function processSection(): Html {
  return html`<section aria-labelledby="process-title">
    <h2 id="process-title">Processes of the shop</h2>
    <p class="note">
      Frozen: it stands still, as in a long garbage collection. Cut off: no packet reaches Redis or the locks.
    </p>
    <ul id="processes"></ul>
    <div class="buttons">
      <button id="freeze-holder" type="button">Freeze the holder of the lock</button>
      <button id="redis" type="button">Stop Redis</button>
    </div>
  </section>`;
}

function lockSection(): Html {
  return html`<section aria-labelledby="lock-title">
    <h2 id="lock-title">Lock of the product</h2>
    <dl class="facts">
      ${figure('holder', 'held by')} ${figure('waiting', 'processes that wait for it')} ${figure('lease', 'lease left')}
      ${figure('token', 'fencing token')}
    </dl>
    <h3>Holders seen last</h3>
    <ol id="grants"></ol>
    <h3>Answers that were neither sold nor out of stock</h3>
    <ul id="refusals"></ul>
  </section>`;
}

function logSection(): Html {
  return html`<section aria-labelledby="log-title">
    <h2 id="log-title">What happened</h2>
    <div id="happenings" role="log" aria-labelledby="log-title" tabindex="0"><ol id="log"></ol></div>
  </section>`;
}

function resultSection(): Html {
  return html`<section aria-labelledby="result-title">
    <h2 id="result-title">Strategies compared</h2>
    <p class="note">One row for each sale that has ended; the newest sale of each strategy is in the charts.</p>
    <div class="scroll" role="region" aria-label="Results of the sales" tabindex="0">
      <table>
        <thead>
          <tr>
            ${RESULT_HEAD.map((title) => html`<th scope="col">${title}</th>`)}
          </tr>
        </thead>
        <tbody id="results"></tbody>
      </table>
    </div>
    <div class="pair">${chart('rates', 'Orders sold per second')} ${chart('latencies', 'p99 of the orders, ms')}</div>
  </section>`;
}

function chart(id: string, title: string): Html {
  return html`<figure>
    <figcaption><h3>${title}</h3></figcaption>
    <div class="chart">
      <canvas id="${id}" role="img" aria-label="${title}, by strategy. The table above has the values."></canvas>
    </div>
  </figure>`;
}

/** Beside the styles of the report. */
const LIVE_STYLES = `
h3 { margin-top: 1rem; }
.top { display: flex; flex-wrap: wrap; gap: .25rem 1rem; justify-content: space-between; align-items: baseline; }
.top h1 { margin: 0; }
#connection { color: var(--muted); }
#connection.away { color: var(--bad); font-weight: 600; }
form, .figures { display: grid; gap: .75rem 1rem; grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr)); margin: .75rem 0 0; }
form .wide { grid-column: span 2; }
label { display: flex; flex-direction: column; gap: .2rem; color: var(--muted); font-size: .9rem; min-width: 0; }
input, select, button { font: inherit; color: var(--text); background: var(--page); border: 1px solid var(--muted); border-radius: .35rem; padding: .45rem .7rem; min-height: 2.75rem; max-width: 100%; }
input, select { width: 100%; }
button { cursor: pointer; }
button.primary { background: var(--left); border-color: var(--left); color: var(--panel); font-weight: 600; }
button:disabled { cursor: not-allowed; opacity: .55; }
:focus-visible { outline: 3px solid var(--left); outline-offset: 2px; }
.buttons { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end; margin-top: .75rem; }
form .buttons { margin-top: 0; }
#problem { color: var(--bad); font-weight: 600; overflow-wrap: anywhere; }
#problem:not(:empty) { margin-top: .75rem; }
.figures { grid-template-columns: repeat(auto-fit, minmax(min(7rem, 100%), 1fr)); }
.figures dd { font-size: 1.7rem; line-height: 1.2; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures .alarm dd, .figures .alarm dt { color: var(--bad); }
.facts { grid-template-columns: repeat(auto-fit, minmax(min(11rem, 100%), 1fr)); }
.facts dd { font-variant-numeric: tabular-nums; }
.legend .sold { --colour: var(--sold); }
.legend .left { --colour: var(--left); }
.legend .start { --colour: var(--text); --stroke: dashed; }
#processes, #grants, #refusals, #log { list-style: none; margin: .5rem 0 0; padding: 0; }
#processes { display: grid; gap: .75rem; }
#processes > li { border: 1px solid var(--line); border-left: .4rem solid var(--mark, var(--good)); border-radius: .35rem; padding: .6rem .75rem; }
#processes > .broken { --mark: var(--bad); }
#processes .who { display: flex; flex-wrap: wrap; gap: 0 .75rem; align-items: baseline; }
#processes .who strong { font-weight: 600; }
#processes .badge { font-weight: 600; }
#processes .broken .badge { color: var(--bad); }
#processes .counts { color: var(--muted); font-size: .9rem; font-variant-numeric: tabular-nums; }
#processes .buttons { margin-top: .4rem; }
#grants, #refusals { min-height: 3rem; font-size: .9rem; font-variant-numeric: tabular-nums; }
#happenings { height: 14rem; overflow-y: auto; }
#log li { padding: .15rem 0 .15rem .6rem; border-left: 3px solid var(--line); overflow-wrap: anywhere; }
#log time { color: var(--muted); font-variant-numeric: tabular-nums; margin-right: .5rem; }
#log .fault { border-color: var(--neutral); }
#log .good { border-color: var(--good); }
#log .bad { border-color: var(--bad); color: var(--bad); font-weight: 600; }
@media (max-width: 44rem) {
  form .wide { grid-column: 1 / -1; }
  form, .figures { grid-template-columns: 1fr 1fr; }
}
`;
