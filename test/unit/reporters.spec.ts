import type { Notice } from 'nest-redis-lock';
import { Reporters } from '../../lib/backends/reporters.js';

const NOTICE: Notice = { level: 'warn', message: 'messages do not arrive' };

function moduleOf(reporters: Reporters) {
  const notices: Notice[] = [];
  const stopper = new AbortController();
  const request = {
    commandTimeout: 1_000,
    report: (notice: Notice) => void notices.push(notice),
    stopped: stopper.signal,
  };
  reporters.add(request);
  return { notices, stopper, request };
}

it('reports to each module that has not stopped', () => {
  const reporters = new Reporters();
  const [first, second] = [moduleOf(reporters), moduleOf(reporters)];
  reporters.report(NOTICE);
  first.stopper.abort();
  reporters.report(NOTICE);
  expect(first.notices).toEqual([NOTICE]);
  expect(second.notices).toEqual([NOTICE, NOTICE]);
  expect(reporters.count).toBe(1);
});

it('reports once to a module whose locks and cache share the connection', () => {
  const reporters = new Reporters();
  const { notices, request, stopper } = moduleOf(reporters);
  reporters.add(request);
  reporters.report(NOTICE);
  expect(notices).toEqual([NOTICE]);
  stopper.abort();
  expect(reporters.count).toBe(0);
});

it('does not report to a module that stopped before the connection was asked to serve it', () => {
  const reporters = new Reporters();
  const { notices, request, stopper } = moduleOf(new Reporters());
  stopper.abort();
  reporters.add(request);
  reporters.report(NOTICE);
  expect(notices).toEqual([]);
});
