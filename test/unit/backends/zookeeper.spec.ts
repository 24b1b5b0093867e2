import { EventEmitter } from 'node:events';
import { zookeeper, type ZooKeeperOptions } from 'nest-redis-lock/zookeeper';
import { Exception, type Client } from 'node-zookeeper-client';
import { ClientInternals, partsOf } from '../../../lib/backends/zookeeper/client-internals.js';
import { childPrefix, inOrder, isWorn, parentPaths, ticketOf } from '../../../lib/backends/zookeeper/lock-node.js';
import { failureOf } from '../../../lib/backends/zookeeper/zookeeper-lock-backend.js';
import { zooKeeperSettings } from '../../../lib/backends/zookeeper/zookeeper-options.js';
import { ServerAttempts } from '../../../lib/backends/zookeeper/zookeeper-session.js';
import { isLasting } from '../../../lib/contracts/store.js';
import { LockConfigError } from '../../../lib/errors/lock-errors.js';

it('names the servers once in the cause of a failure', () => {
  const settings = zooKeeperSettings('127.0.0.1:2181');
  const first = failureOf(settings, 'no server can be reached');
  expect(first?.message).toMatch(/^ZooKeeper at 127\.0\.0\.1:2181: no server can be reached/);
  expect(failureOf(settings, 'no server can be reached', first)).toBe(first);
});

it('goes on refusing who lacks a right, and no other failure lasts', () => {
  const settings = zooKeeperSettings('127.0.0.1:2181');
  const failure = (code: number) =>
    failureOf(settings, undefined, Object.assign(Object.create(Exception.prototype) as Exception, { code }));
  expect(isLasting(failure(Exception.NO_AUTH), { ofKey: false })).toBe(true);
  expect(isLasting(failure(Exception.CONNECTION_LOSS), { ofKey: true })).toBe(false);
});

describe('the order of nodes', () => {
  it('is that of their numbers, whatever their tickets are, and ignores other nodes', () => {
    const nodes = ['b-lock-0000000010', 'a-lock-0000000011', 'z-lock-0000000009', 'config', 'x-lock-12'];
    expect(inOrder(nodes)).toEqual(['z-lock-0000000009', 'b-lock-0000000010', 'a-lock-0000000011']);
  });

  it('continues after the numbers of 32 bits wrap', () => {
    const nodes = ['c-lock--2147483648', 'a-lock-2147483646', 'd-lock--2147483647', 'b-lock-2147483647'];
    expect(inOrder(nodes).map((node) => node[0])).toEqual(['a', 'b', 'c', 'd']);
  });

  it('asks for a new parent long before they wrap', () => {
    expect(['a-lock-0000000000', 'a-lock-1073741823'].map(isWorn)).toEqual([false, false]);
    expect(['a-lock-1073741824', 'a-lock-2147483647', 'a-lock--2147483648'].map(isWorn)).toEqual([true, true, true]);
  });
});

describe('the path of a name', () => {
  it('differs for different names and prefixes', () => {
    const long = 'x'.repeat(300);
    const names = [
      'a',
      'A',
      'a/b',
      'a%2Fb',
      '.',
      '..',
      '~',
      long,
      `${long}x`,
      'a:b',
      ' a',
      'a ',
      '\u0000',
      '\u{1f512}',
    ];
    const requests = [
      ...names.map((name) => ({ prefix: undefined, name })),
      { prefix: 'a', name: 'b' },
      { prefix: 'a:b', name: 'c' },
    ];
    const paths = requests.map(({ prefix, name }) => parentPaths('/locks', prefix)(name));
    expect(new Set(paths).size).toBe(requests.length);
    for (const path of paths) expect(path).toMatch(/^\/locks\/(?!\.\.?$)[\x21-\x7e]{1,420}$/);
  });

  it('shows the ticket of a node', () => {
    expect(ticketOf(`${childPrefix('4f/x:17')}0000000003`)).toBe('4f/x:17');
    expect(ticketOf('%zz-lock-0000000003')).toBe('%zz-lock-0000000003');
  });
});

describe('options', () => {
  it.each<[unknown, RegExp]>([
    ['', /"zookeeper.servers" is ""; give servers/],
    [undefined, /"zookeeper" is undefined/],
    [{}, /"zookeeper.servers" is undefined/],
    ['a:b:c', /"zookeeper.servers" is "..."/],
    ['user:geheim@a:2181', /"zookeeper.servers" is "..."; give servers/],
    [['user:geheim@a:2181'], /"zookeeper" is a list/],
    [{ servers: ['a:1', 'b c'] }, /"zookeeper.servers"/],
    ['a:2181,b:65536', /"zookeeper.servers" is "a:2181,b:65536"/],
    ['a:0', /"zookeeper.servers" is "a:0"/],
    [{ servers: 'a', root: '/lo\u0001cks' }, /"zookeeper.root"/],
    [{ servers: 'a', sessionTimeout: 10 }, /"zookeeper.sessionTimeout" is 10; give milliseconds \(from 1000/],
    [{ servers: 'a', root: 'locks' }, /"zookeeper.root" is "locks"; give a path/],
    [{ servers: 'a', root: '/zookeeper/x' }, /"zookeeper.root"/],
    [{ servers: 'a', firstToken: -1 }, /"zookeeper.firstToken" is -1; give a whole number/],
    [{ servers: 'a', auth: { user: 'shop' } }, /"zookeeper.auth.password" is missing/],
    [{ servers: 'a', auth: { user: 'a:b', password: 'geheim' } }, /"zookeeper.auth.user" is "a:b"/],
    [{ servers: 'a', host: 'b' }, /Unknown option "zookeeper.host"/],
  ])('refuses %j and says what to give', (options, message) => {
    const make = () => zookeeper(options as ZooKeeperOptions);
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
    expect(make).not.toThrow(/geheim/);
  });

  it('opens no connection before the first use', () => {
    expect(zookeeper('zk1,zk2:2182/app').traits.lease).toBe('session');
  });
});

describe('a connection to ZooKeeper', () => {
  /** What is left of the trusted time of a session when its server has fallen silent. */
  const REST = 3_000;

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
      const limit = attempts.endsAt(REST) - now;
      now += limit;
      attempts.next(REST);
      return Math.round(limit);
    });
  }

  describe('how long a server may take to answer a new connection', () => {
    it('is at first what lets one request wait for all of them, then twice as long, to what is left of the session', () => {
      expect(limits(new ServerAttempts(2, 1_000), 9)).toEqual([
        500, 500, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 3_000,
      ]);
    });

    it('lets what is left of the session suffice for all of them, where requests wait for longer', () => {
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
      attempts.next(REST);
      expect(attempts.underWay).toBe(true);
      expect(limits(attempts, 1)).toEqual([500]);
    });

    it('is not longer because others have refused the connection at once', () => {
      const attempts = new ServerAttempts(5, 1_000);
      for (let round = 1; round <= 2; round += 1) {
        for (let refused = 1; refused <= 3; refused += 1) {
          now += 1;
          attempts.next(REST);
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
});
