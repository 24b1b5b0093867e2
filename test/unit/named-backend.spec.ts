import { QueueingBackend } from '../../lib/lock/line/named-backend.js';
import { DrivenClock } from '../support/driven-clock.js';
import { ScriptedBackend } from '../support/scripted-backend.js';

const COMMAND_TIMEOUT = 1_000;

const clock = new DrivenClock();

beforeEach(() => clock.start());
afterEach(() => clock.stop());

class SilentBackend extends ScriptedBackend {
  label(): Promise<void> {
    return new Promise(() => {});
  }
}

it('stops within one time limit of a backend that answers neither the releases nor the label', async () => {
  const backend = new SilentBackend(clock);
  delete backend.atOnce.release;
  const options = { prefix: undefined, commandTimeout: COMMAND_TIMEOUT, label: 'shop' };
  const named = new QueueingBackend('', backend, options, { warn: () => {} });
  named.releaser.abandon({ names: ['job'], ticket: named.contenders.nextTicket() }, 30_000);
  const stoppedAt = performance.now();
  await clock.settle(named.stop());
  expect(performance.now() - stoppedAt).toBeLessThan(1.5 * COMMAND_TIMEOUT);
});
