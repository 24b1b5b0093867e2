import { Grant, TokenFloor } from '../../../lib/lock/grant/grant.js';
import { type ReleaseOutcome, worseOf } from '../../../lib/lock/grant/lease.js';
import { Releaser } from '../../../lib/lock/grant/releaser.js';
import { BackendCalls } from '../../../lib/lock/grant/store.js';
import { Watchdog } from '../../../lib/lock/grant/watchdog.js';
import { currentInstant } from '../../../lib/timing/clock.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { ScriptedBackend } from '../../support/scripted-backend.js';

describe('a releaser', () => {
  const clock = new DrivenClock();

  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  it('forgets the minimum holds that have ended, even behind one that lasts', async () => {
    const logger = { warn: () => {} };
    const scripted = new ScriptedBackend(clock);
    const calls = new BackendCalls(scripted, scripted, undefined, 1_000);
    const releaser = new Releaser(calls, new Watchdog(calls, logger), logger);
    releaser.abandon({ names: ['job'], ticket: 'lasting', minHoldUntil: performance.now() + 3_600_000 }, 1_000);
    for (let ticket = 0; ticket < 1_000; ticket++) {
      releaser.abandon({ names: ['job'], ticket: `short:${ticket}`, minHoldUntil: performance.now() + 5 }, 1_000);
      await clock.pass(1);
    }
    expect(releaser.minHoldCount).toBeLessThan(100);
  });

  it('waits, before the backend closes, for the answers to the releases of holders', async () => {
    const logger = { warn: () => {} };
    const backend = new ScriptedBackend(clock);
    backend.atOnce = {};
    const calls = new BackendCalls(backend, backend, undefined, 1_000);
    const releaser = new Releaser(calls, new Watchdog(calls, logger), logger);
    const released = releaser.release(new Grant(['job'], 'held', currentInstant(), 10_000, { first: 1, count: 1 }));
    let stopped = false;
    const stopping = releaser.stop(1_000).then(() => (stopped = true));
    await clock.pass(10);
    expect(stopped).toBe(false);
    const release = await backend.take('release');
    await release.answer({ status: 'released', resent: false });
    expect(stopped).toBe(true);
    expect(await released).toBe('released');
    await stopping;
  });
});

it.each<[ReleaseOutcome, ReleaseOutcome, ReleaseOutcome]>([
  ['released', 'released', 'released'],
  ['released', 'unconfirmed', 'unconfirmed'],
  ['unconfirmed', 'gone', 'gone'],
  ['taken', 'released', 'taken'],
])('a release of %s and %s is %s', async (one, other, both) => {
  expect(await worseOf(Promise.resolve(one), Promise.resolve(other))).toBe(both);
  expect(await worseOf(Promise.resolve(other), Promise.resolve(one))).toBe(both);
});

it('a floor of tokens holds for names that it no longer remembers, and no name that is in use raises that of others', () => {
  const floor = new TokenFloor();
  floor.saw('first', 100);
  for (let name = 0; name < 25_000; name++) {
    floor.saw(`other ${name}`, 50);
    floor.saw('hot', 1_000 + name);
  }
  expect(floor.of('hot')).toBe(25_999);
  expect(floor.of('other 24999')).toBeGreaterThanOrEqual(50);
  expect(floor.of('first')).toBe(100);
  expect(floor.admit(['first'], { first: 100, count: 1 }, 'write').count).toBe(0);
});
