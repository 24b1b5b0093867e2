import { EventEmitter } from 'node:events';
import type { Client } from 'node-zookeeper-client';
import { ClientInternals, partsOf } from '../../lib/backends/zookeeper/client-internals.js';
import { ServerAttempts } from '../../lib/backends/zookeeper/zookeeper-session.js';

const SESSION = 9_000;

let now = 1_000;
const { now: realNow } = performance;
beforeEach(() => {
  now = 1_000;
  performance.now = () => now;
});
afterEach(() => {
  performance.now = realNow;
});

/** How long each of several attempts may take, one after the other, of which none is answered within that time. */
function limits(attempts: ServerAttempts, count: number): number[] {
  return Array.from({ length: count }, () => {
    const limit = attempts.endsAt(SESSION) - now;
    now += limit;
    attempts.next(SESSION);
    return Math.round(limit);
  });
}

describe('how long a server may take to answer a new connection', () => {
  it('is at first what lets one request wait for all of them, then twice as long, to a third of the session', () => {
    expect(limits(new ServerAttempts(2, 1_000), 9)).toEqual([
      500, 500, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 3_000,
    ]);
  });

  it('lets a third of the session suffice for all of them, where requests wait for longer', () => {
    expect(limits(new ServerAttempts(3, 60_000), 4)).toEqual([1_000, 1_000, 1_000, 2_000]);
  });

  it('is a tenth of a second at least, however many there are', () => {
    expect(limits(new ServerAttempts(20, 1_000), 1)).toEqual([100]);
  });

  it('begins anew when one has answered, and is no matter until the connection ends', () => {
    const attempts = new ServerAttempts(2, 1_000);
    limits(attempts, 5);
    expect(attempts.underWay).toBe(true);
    attempts.answered();
    expect(attempts.underWay).toBe(false);
    attempts.next(SESSION);
    expect(attempts.underWay).toBe(true);
    expect(limits(attempts, 1)).toEqual([500]);
  });

  it('is not longer because others have refused the connection at once', () => {
    const attempts = new ServerAttempts(5, 1_000);
    for (let round = 1; round <= 2; round += 1) {
      for (let refused = 1; refused <= 3; refused += 1) {
        now += 1;
        attempts.next(SESSION);
      }
      expect(limits(attempts, 2)).toEqual([200, 200]);
    }
  });
});

class Named {
  dataWatches: string[] = [];
  existWatches: string[] = [];
  childWatches: string[] = [];
  relativeZxid = 'zxid';
  chrootPath: string | undefined;
}

function watchesRequest(payload: Partial<Named>) {
  return { header: { type: 101, xid: -8 }, payload: Object.assign(new Named(), payload) };
}

describe('the request that names all watches', () => {
  const paths = (kind: string) =>
    Array.from({ length: 1_000 }, (_path, index) => `/${kind}/${index}/${'x'.repeat(200)}`);

  it('is divided into small ones that name each of them once', () => {
    const all = { dataWatches: paths('data'), existWatches: paths('exist'), childWatches: paths('child') };
    const parts = partsOf(watchesRequest(all)) as ReturnType<typeof watchesRequest>[];
    const named = { dataWatches: [] as string[], existWatches: [] as string[], childWatches: [] as string[] };
    for (const { payload } of parts) {
      expect(payload).toBeInstanceOf(Named);
      expect(payload.relativeZxid).toBe('zxid');
      const lists = [payload.dataWatches, payload.existWatches, payload.childWatches];
      expect(lists.flat().reduce((bytes, path) => bytes + path.length + 4, 0)).toBeLessThanOrEqual(128 * 1024);
      named.dataWatches.push(...payload.dataWatches);
      named.existWatches.push(...payload.existWatches);
      named.childWatches.push(...payload.childWatches);
    }
    expect(named).toEqual(all);
    expect(new Set(parts.map(({ header }) => header)).size).toBe(parts.length);
  });

  it('counts the chroot that the client puts before each path, and bytes instead of characters', () => {
    const [plain, rooted, wide] = [
      watchesRequest({ childWatches: paths('a') }),
      watchesRequest({ childWatches: paths('a'), chrootPath: `/${'r'.repeat(200)}` }),
      watchesRequest({ childWatches: paths('a').map((path) => path.replaceAll('x', 'é')) }),
    ].map((request) => partsOf(request).length);
    expect([plain, rooted, wide]).toEqual([2, 4, 4]);
  });

  it('is the only one that is divided', () => {
    const request = { header: { type: 1 }, payload: { path: '/a' } };
    expect(partsOf(request)).toEqual([request]);
  });
});

class FakeManager extends EventEmitter {
  readonly sent: unknown[] = [];
  readonly packetQueue = { queue: ['of the last connection'] };

  queue(request: unknown): void {
    this.sent.push(request);
  }
}

it('forgets what was not sent at the end of a connection, and tells of the end of one that never opened', () => {
  const connectionManager = new FakeManager();
  let ended = 0;
  const internals = new ClientInternals({ connectionManager } as unknown as Client, () => (ended += 1));
  connectionManager.emit('state', 1);
  expect(ended).toBe(0);
  connectionManager.emit('state', 0);
  expect(ended).toBe(1);
  internals.forgetConnection();
  expect(connectionManager.packetQueue.queue).toEqual([]);
});
