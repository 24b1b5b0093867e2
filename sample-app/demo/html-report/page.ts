import type { ReadsResult } from '../reads/cached-reads.js';
import {
  cells,
  FAULT_HEAD,
  faultCells,
  HEAD,
  primitiveCells,
  PRIMITIVES_HEAD,
  READS_HEAD,
  readsCells,
} from '../report.js';
import { failuresOf, holds, readsFailures, type PrimitiveResult, type StrategyResult } from '../verdict.js';
import { html, inlineJson, inlineScript, STYLES, type Html } from './html.js';
import type { ReportData } from './report-data.js';

export interface Page {
  readonly verdict: string;
  readonly passed: boolean;
  /** What happened in the middle of each sale. */
  readonly fault?: string;
  readonly results: readonly StrategyResult[];
  /** Empty where products were not read. */
  readonly reads: readonly ReadsResult[];
  /** Empty where they were not tried. */
  readonly primitives: readonly PrimitiveResult[];
  readonly data: ReportData;
  /** By their names, as are the versions. */
  readonly settings: Readonly<Record<string, string | number>>;
  readonly versions: Readonly<Record<string, string>>;
  readonly date: Date;
  /** Programs, in the order in which they run. */
  readonly chartLibrary: string;
  readonly charts: string;
}

/** The report as one document, which loads nothing: its security policy forbids it. */
export function page(given: Page): string {
  const { verdict, results, reads, primitives, fault, data, settings, versions, date, chartLibrary, charts } = given;
  const { label, look } = outcome(given);
  const latencyHead = ['strategy', ...data.percentiles.map(percentileName)];
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta
          http-equiv="Content-Security-Policy"
          content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
        />
        <title>${label}: selling ${data.stock} pieces with ${data.sales.length} strategies</title>
        <style>
          ${STYLES}
        </style>
      </head>
      <body>
        <main>
          <h1>Selling ${data.stock} pieces from several processes</h1>
          <div class="verdict ${look}">
            <strong>${label}</strong>
            <p>${verdict}</p>
          </div>
          <section>
            <h2>Results</h2>
            ${table('Results', HEAD, results.map(resultRow))}
          </section>
          ${fault === undefined ? [] : [faultSection(fault, results)]}
          <section>
            <h2>Pieces sold and stock shown, over time</h2>
            <p class="note">Sold is what the shop accepted. Above the dashed line, it sold more than it had.</p>
            <ul class="legend">
              <li style="--colour: var(--sold)">pieces sold</li>
              <li style="--colour: var(--left)">stock left, as the database shows it</li>
              <li style="--colour: var(--text); --stroke: dashed">stock at the start</li>
            </ul>
            <div class="panels">${results.map((result, index) => course(result, index, data.stock))}</div>
          </section>
          <div class="pair">
            <section>
              ${figure('latency', 'Latency', 'From sending an order to its answer, refusals included.')}
              <details>
                <summary>As a table, in milliseconds</summary>
                ${table(
                  'Latency',
                  latencyHead,
                  data.sales.map((sale) => latencyRow(latencyHead, sale)),
                )}
              </details>
            </section>
            <section>
              ${figure('throughput', 'Orders accepted per second', 'Until the last was accepted; refusals do not count.')}
            </section>
          </div>
          ${reads.length > 0 ? [readsSection(reads)] : []}
          ${primitives.length > 0 ? [primitivesSection(primitives)] : []}
          <section>
            <h2>Settings and versions</h2>
            <dl>${Object.entries({ ...settings, ...versions }).map(fact)}</dl>
          </section>
          <footer>
            <p>
              Made by the oversell demo of nest-redis-lock on
              <time datetime="${date.toISOString()}">${date.toISOString().slice(0, 16).replace('T', ' ')} UTC</time>.
            </p>
          </footer>
        </main>
        <script id="report-data" type="application/json">
          ${inlineJson(data)}
        </script>
        <script>
          ${inlineScript(chartLibrary)};
        </script>
        <script type="module">
          ${inlineScript(charts)};
        </script>
      </body>
    </html>`.text;
}

function outcome({ passed, results }: Page): { label: string; look: string } {
  if (!passed) return { label: '✗ FAILED', look: 'failed' };
  if (results.every(({ strategy }) => strategy === 'none')) return { label: 'UNPROTECTED', look: 'unprotected' };
  return { label: '✓ PASSED', look: 'passed' };
}

function table(name: string, head: readonly string[], rows: Html[]): Html {
  return html`<div class="scroll" role="region" aria-label="${name}" tabindex="0">
    <table>
      <thead>
        <tr>
          ${head.map((text) => html`<th scope="col">${text}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

function resultRow(result: StrategyResult): Html {
  return row(HEAD, cells(result), lookOf(result));
}

function lookOf(result: StrategyResult): string {
  return holds(result) && failuresOf(result).length === 0 ? '' : 'broken';
}

function faultSection(fault: string, results: readonly StrategyResult[]): Html {
  const rows = results.map((result) => row(FAULT_HEAD, faultCells(result), lookOf(result)));
  return html`<section>
    <h2>What the fault cost</h2>
    <p class="note">
      In each sale, ${fault}. Clients send an order again until it is answered; one that never is counts as lost. A
      standstill is a time in which no order was accepted.
    </p>
    ${table('Fault', FAULT_HEAD, rows)}
  </section>`;
}

function readsSection(reads: readonly ReadsResult[]): Html {
  const rows = reads.map((result) =>
    row(READS_HEAD, readsCells(result), readsFailures([result]).length > 0 ? 'broken' : ''),
  );
  return html`<section>
    <h2>Reads of products while orders and restocks change them</h2>
    <p class="note">
      A read is stale if it shows a stock from before an order or a restock that was answered before the read was sent.
    </p>
    ${table('Reads', READS_HEAD, rows)}
  </section>`;
}

function primitivesSection(primitives: readonly PrimitiveResult[]): Html {
  const rows = primitives.map((result) =>
    row(PRIMITIVES_HEAD, primitiveCells(result), result.failures.length > 0 ? 'broken' : ''),
  );
  return html`<section>
    <h2>What the shop builds on locks</h2>
    <p class="note">The evidence was counted by the database and by the payment provider, outside of the locks.</p>
    ${table('Primitives', PRIMITIVES_HEAD, rows)}
  </section>`;
}

function latencyRow(head: readonly string[], { strategy, latency }: ReportData['sales'][number]): Html {
  return row(head, [strategy, ...latency.map((milliseconds) => milliseconds.toFixed(1))]);
}

/** Each cell has the name of its column as a label, for screens too narrow for columns. */
function row(head: readonly string[], [name = '', ...numbers]: readonly string[], look = ''): Html {
  return html`<tr class="${look}">
    <th scope="row">${name}</th>
    ${numbers.map((text, index) => html`<td data-column="${head[index + 1] ?? ''}">${text}</td>`)}
  </tr>`;
}

function course({ strategy, accepted, stockLeft, oversoldBy }: StrategyResult, index: number, stock: number): Html {
  const sold = `${accepted} sold of ${stock}`;
  const remark = oversoldBy > 0 ? `${oversoldBy} too many, and ${stockLeft} shown as left` : `${stockLeft} left`;
  return html`<figure>
    <figcaption>
      <h3>${strategy}</h3>
      <p>${sold}; ${remark}</p>
    </figcaption>
    <div class="chart">
      <canvas id="course-${index}" role="img" aria-label="${strategy}, over time: ${sold}; ${remark}"></canvas>
    </div>
  </figure>`;
}

function figure(id: string, title: string, note: string): Html {
  return html`<figure>
    <figcaption>
      <h2>${title}</h2>
      <p>${note}</p>
    </figcaption>
    <div class="chart tall"><canvas id="${id}" role="img" aria-label="${title} of each strategy"></canvas></div>
  </figure>`;
}

function fact([name, value]: [string, string | number]): Html {
  return html`<div>
    <dt>${name}</dt>
    <dd>${value}</dd>
  </div>`;
}

function percentileName(percentile: number): string {
  return percentile === 100 ? 'max' : `p${percentile}`;
}
