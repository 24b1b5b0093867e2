import { jest } from '@jest/globals';
import type { Lock, LockService } from 'nest-redis-lock';
import { Gate } from '../../support/gate.js';

const pauses: number[] = [];

jest.unstable_mockModule('node:timers/promises', () => ({
  setTimeout: async (ms: number) => void pauses.push(ms),
}));

it('pauses longer after each term that fails, and as at first after one that did not', async () => {
  const { StandingCandidacy } = await import('../../../lib/primitives/leader/standing-candidacy.js');
  const { signal } = new AbortController();
  const locks = {
    withLock: <T>(_name: string, _options: object, body: (lock: Lock) => Promise<T>) =>
      body({ fencingToken: 7, signal, held: true } as Lock),
  };
  const settings = { lease: 10_000, backend: undefined };
  const source = { backend: 'scripted', label: 'test' };
  const logger = { log() {}, warn() {}, error() {} };
  const candidacy = new StandingCandidacy(
    'restock',
    settings,
    locks as unknown as LockService,
    logger,
    () => {},
    source,
  );
  let elections = 0;
  const lasting = [4, 6];
  const [elected, again] = [new Gate(), new Gate()];
  candidacy.listen({
    onElected: async () => {
      elections += 1;
      if (!lasting.includes(elections)) throw new Error('not now');
      (elections === 4 ? elected : again).open();
    },
  });
  await elected.opened;
  expect(pauses).toEqual([1_000, 2_000, 4_000]);
  await candidacy.resign();
  await again.opened;
  expect(pauses).toEqual([1_000, 2_000, 4_000, 1_000, 1_000]);
  await candidacy.leave();
});
