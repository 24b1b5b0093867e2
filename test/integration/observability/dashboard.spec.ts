import { readdir, readFile } from 'node:fs/promises';
import { memory } from 'nest-redis-lock';
import { parse } from 'yaml';
import { startObservedShop, useEachFeature } from '../../support/observed-shop.js';

/** The dashboard and the alert rules of docs/operations, against a scrape of an application with all features. */

const OPERATIONS = new URL('../../../docs/operations/', import.meta.url);
/** Prometheus adds them to what it scrapes. */
const OF_PROMETHEUS = ['job', 'instance'];
const FUNCTIONS = new Set(['sum', 'max', 'rate', 'increase', 'histogram_quantile', 'time']);
const KEYWORDS = new Set(['by', 'and', 'or', 'unless']);

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly datasource?: object;
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly datasource: object }[];
}

const page = (name: string) => readFile(new URL(name, OPERATIONS), 'utf8');

const rules: Rule[] = [];
let dashboard: Readonly<Record<string, unknown>> & { readonly panels: readonly Panel[] };
/** The labels of each metric. */
const labelsOf = new Map<string, Set<string>>();
/** The metrics without the endings of histograms. */
let metrics: readonly string[];

beforeAll(async () => {
  const { groups } = parse(await page('alerts.yml')) as { groups: { rules: Rule[] }[] };
  rules.push(...groups.flatMap((group) => group.rules));
  dashboard = JSON.parse(await page('grafana/nest-redis-lock.json'));
  await using observed = await startObservedShop({ backend: memory(), cache: { memory: {} } });
  await useEachFeature(observed);
  metrics = (await observed.registry.getMetricsAsJSON()).map(({ name }) => name);
  for (const line of (await observed.registry.metrics()).split('\n')) {
    const [, name, labels = ''] = /^(\w+)(?:\{(.*)\})? /.exec(line) ?? [];
    if (name) labelsOf.set(name, new Set([...labels.matchAll(/(\w+)="/g)].map(([, label]) => label as string)));
  }
});

/** The queries of the dashboard and the rules, by where they stand. */
function queries(): [where: string, query: string][] {
  const ofPanels = dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, refId }): [string, string] => [`${title} ${refId}`, expr]),
  );
  return [...ofPanels, ...rules.map(({ alert, expr }): [string, string] => [alert, expr])];
}

/** What of a query no scrape shows: metrics, labels, and functions that this check does not know. */
function unknownIn(query: string): string[] {
  const bare = query.replaceAll(/"[^"]*"|\[[^\]]*\]/g, '');
  const selectors = [...bare.matchAll(/(nest_redis_\w+)(?:\{([^}]*)\})?/g)];
  const names = selectors.map(([, name]) => name as string);
  const known = (label: string, of: readonly string[]) =>
    OF_PROMETHEUS.includes(label) || of.every((name) => labelsOf.get(name)?.has(label));
  const unknown = names.filter((name) => !labelsOf.has(name));
  for (const [, name, matchers = ''] of selectors) {
    const labels = [...matchers.matchAll(/(\w+)(?:=|!=|=~|!~)/g)].map(([, label]) => label as string);
    unknown.push(...labels.filter((label) => !known(label, [name as string])));
  }
  for (const [, grouping = ''] of bare.matchAll(/\bby \(([^)]*)\)/g)) {
    unknown.push(...grouping.split(', ').filter((label) => !known(label, names)));
  }
  const rest = bare.replaceAll(/nest_redis_\w+(\{[^}]*\})?|\bby \([^)]*\)/g, '');
  const words = [...rest.matchAll(/[A-Za-z_]\w*/g)].map(([word]) => word);
  return [...unknown, ...words.filter((word) => !FUNCTIONS.has(word) && !KEYWORDS.has(word))];
}

it('queries name only metrics that a scrape shows, and only labels that they have', () => {
  expect(queries().length).toBeGreaterThan(80);
  expect(queries().flatMap(([where, query]) => unknownIn(query).map((each) => `${where}: ${each}`))).toEqual([]);
});

it('the check of queries finds unknown metrics, labels and functions', () => {
  expect(unknownIn('sum(nest_redis_lock_hold)')).toEqual(['nest_redis_lock_hold']);
  expect(unknownIn('nest_redis_lock_held{reason="x"}')).toEqual(['reason']);
  expect(unknownIn('sum by (le) (nest_redis_lock_held)')).toEqual(['le']);
  expect(unknownIn('avg(nest_redis_lock_held) > up')).toEqual(['avg', 'up']);
});

it('the dashboard shows every metric', () => {
  const shown = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)).join('\n');
  const named = new Set(
    [...shown.matchAll(/nest_redis_\w+/g)].map(([name]) => name.replace(/_seconds_bucket$/, '_seconds')),
  );
  expect(metrics.filter((name) => !named.has(name))).toEqual([]);
});

it('the dashboard has what Grafana imports: an id, a data source to choose, and panels that do not overlap', () => {
  const datasource = { type: 'prometheus', uid: '${datasource}' };
  const { list } = dashboard['templating'] as { list: { name: string; type: string; query: unknown }[] };
  expect(dashboard).toMatchObject({ uid: 'nest-redis-lock', title: 'nest-redis-lock', schemaVersion: 39 });
  expect(list[0]).toMatchObject({ name: 'datasource', type: 'datasource', query: 'prometheus' });
  expect(list[1]).toMatchObject({ name: 'job', type: 'query', datasource });
  const { panels } = dashboard;
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const fields = panels.flatMap(({ gridPos: { x, y, w, h } }) => {
    expect(x + w).toBeLessThanOrEqual(24);
    return Array.from({ length: w * h }, (_, index) => `${x + (index % w)}:${y + Math.floor(index / w)}`);
  });
  expect(new Set(fields).size).toBe(fields.length);
  for (const panel of panels.filter(({ type }) => type !== 'row')) {
    expect(panel.datasource).toEqual(datasource);
    const refIds = panel.targets?.map(({ refId }) => refId) ?? [];
    expect(refIds.length).toBeGreaterThan(0);
    expect(new Set(refIds).size).toBe(refIds.length);
    for (const target of panel.targets ?? []) expect(target.datasource).toEqual(datasource);
  }
});

it('each alert has its runbook, and no page is left over', async () => {
  const names = rules.map(({ alert }) => alert);
  expect(new Set(names).size).toBe(names.length);
  const pages = await readdir(new URL('runbooks/', OPERATIONS));
  expect(pages.toSorted()).toEqual(names.map((name) => `${name}.md`).toSorted());
  const index = await page('monitoring.md');
  for (const { alert, labels, annotations } of rules) {
    expect(labels['severity']).toMatch(/^(critical|warning|info)$/);
    expect(annotations).toEqual({
      summary: expect.any(String),
      description: expect.any(String),
      runbook_url: `docs/operations/runbooks/${alert}.md`,
    });
    const runbook = await page(`runbooks/${alert}.md`);
    const headings = [...runbook.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading);
    expect(headings).toEqual([alert, 'What it means', 'What to look at', 'What to do']);
    expect(index).toContain(`(runbooks/${alert}.md)`);
  }
});

it('the runbooks name only panels that the dashboard has, and labels of alerts that their query keeps', async () => {
  const titles = dashboard.panels.map(({ title }) => title);
  const named: string[] = [];
  for (const { alert, expr, annotations } of rules) {
    const runbook = await page(`runbooks/${alert}.md`);
    const panels = [...runbook.matchAll(/(?<!\w)_([A-Z][^_]+)_(?!\w)/g)].map(([, name]) => name as string);
    named.push(...panels);
    const missing = panels.filter((name) => !titles.some((title) => title.startsWith(name)));
    expect({ alert, missing }).toEqual({ alert, missing: [] });
    const kept = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, labels = '']) => labels.split(', '));
    const used = [
      ...Object.values(annotations)
        .join()
        .matchAll(/\$labels\.(\w+)/g),
    ].map(([, label]) => label);
    expect({ alert, used: used.filter((label) => !kept.includes(label as string)) }).toEqual({ alert, used: [] });
  }
  expect(named.length).toBeGreaterThan(5);
});
