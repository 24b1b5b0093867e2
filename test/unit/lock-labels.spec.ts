import { LockInspection } from '../../lib/backends/redis/locks/lock-inspection.js';
import type { ScriptRunner } from '../../lib/backends/redis/connection/script-runner.js';

/** Answers every look at a lock with the same holder and waiters, and counts what is read besides. */
class CountingScripts {
  readonly read: string[] = [];

  async run(): Promise<unknown> {
    return ['one:1', 30_000, '8', 2, 0, ['two:1', 'one:2', 'foreign']];
  }

  async command(send: (client: { get(key: string): Promise<string> }) => Promise<string>): Promise<string> {
    return send({
      get: async (key) => {
        this.read.push(key);
        return key.includes('one') ? 'web-1' : 'web-2';
      },
    });
  }
}

it('reads the label of each process once for the locks of a page', async () => {
  const scripts = new CountingScripts();
  const inspection = new LockInspection(scripts as unknown as ScriptRunner);
  const page = Array.from({ length: 50 }, (_, index) => inspection.inspect({ name: `order:${index}` }));
  for (const state of await Promise.all(page)) {
    expect(state).toMatchObject({
      label: 'web-1',
      waiters: [{ ticket: 'two:1', label: 'web-2' }, { ticket: 'one:2', label: 'web-1' }, { ticket: 'foreign' }],
    });
  }
  expect(scripts.read).toEqual(['lock:{one}:label', 'lock:{two}:label']);
  await inspection.inspect({ name: 'order:7' });
  expect(scripts.read).toHaveLength(4);
});
