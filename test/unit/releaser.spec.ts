import { BackendCalls } from '../../lib/lock/backend/backend-calls.js';
import { Releaser } from '../../lib/lock/lease/releaser.js';
import { Watchdog } from '../../lib/lock/lease/watchdog.js';
import { DrivenClock } from '../support/driven-clock.js';
import { ScriptedBackend } from '../support/scripted-backend.js';

const clock = new DrivenClock();

beforeEach(() => clock.start());
afterEach(() => clock.stop());

it('forgets the minimum holds that have ended, even behind one that lasts', async () => {
  const logger = { warn: () => {} };
  const calls = new BackendCalls(new ScriptedBackend(clock), undefined, 1_000);
  const releaser = new Releaser(calls, new Watchdog(calls, logger), logger);
  releaser.abandon({ names: ['job'], ticket: 'lasting', minHoldUntil: performance.now() + 3_600_000 }, 1_000);
  for (let ticket = 0; ticket < 1_000; ticket++) {
    releaser.abandon({ names: ['job'], ticket: `short:${ticket}`, minHoldUntil: performance.now() + 5 }, 1_000);
    await clock.pass(1);
  }
  expect(releaser.minHoldCount).toBeLessThan(100);
});
