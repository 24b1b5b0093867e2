import type { LockBackend } from 'nest-redis-lock';
import { zookeeper, type ZooKeeperOptions } from 'nest-redis-lock/zookeeper';
import { type Client, createClient } from 'node-zookeeper-client';
import { FaultProxy } from '../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { startZooKeeperServer, type ZooKeeperServer } from '../../support/servers/zookeeper-server.js';

/** The length of the sessions: the least that a server with a tick of 500 ms grants. */
export const SESSION = 1_000;

export let server: ZooKeeperServer;

const opened: { close(): Promise<void> }[] = [];

/** Starts one server for the tests of a file, and closes after each test what it opened. */
export function oneZooKeeper(options?: Parameters<typeof startZooKeeperServer>[0]): void {
  beforeAll(async () => {
    server = await startZooKeeperServer(options);
  });
  afterAll(() => server.stop());
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((each) => each.close()));
  });
}

export function closedAfterwards<T extends { close(): Promise<void> }>(each: T): T {
  opened.push(each);
  return each;
}

export function backendOn(options: Partial<ZooKeeperOptions> = {}): LockBackend {
  return zookeeper({ servers: server.connection, sessionTimeout: SESSION, ...options });
}

export async function appOn(options: Partial<ZooKeeperOptions> = {}): Promise<LockApp> {
  return closedAfterwards(await startLockApp({ backend: backendOn(options) }));
}

/** A way to the server that can be cut. */
export async function proxied(): Promise<FaultProxy> {
  const proxy = await FaultProxy.start(server.port);
  closedAfterwards({ close: () => proxy.stop() });
  return proxy;
}

/** What lies below a node, read with a session of its own; `undefined` where the node is not there. */
export class Onlooker {
  private constructor(private readonly client: Client) {}

  static async open(): Promise<Onlooker> {
    const client = createClient(server.connection, { sessionTimeout: 20_000 });
    const connected = new Promise<void>((resolve) => client.once('connected', () => resolve()));
    client.connect();
    await connected;
    return closedAfterwards(new Onlooker(client));
  }

  children(path: string): Promise<string[] | undefined> {
    return new Promise((resolve) =>
      this.client.getChildren(path, (error, names) => resolve(error ? undefined : names)),
    );
  }

  remove(path: string): Promise<void> {
    return new Promise((resolve, reject) => this.client.remove(path, (error) => (error ? reject(error) : resolve())));
  }

  create(path: string): Promise<void> {
    return new Promise((resolve, reject) => this.client.create(path, (error) => (error ? reject(error) : resolve())));
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.client.once('disconnected', () => resolve()));
    this.client.close();
    await closed;
  }
}

/** The ids of the sessions that have ephemeral nodes. */
export async function sessionsWithNodes(host: ZooKeeperServer): Promise<bigint[]> {
  const [, ephemerals = ''] = (await host.ask('dump')).split('Sessions with Ephemerals');
  return [...ephemerals.matchAll(/^(0x[0-9a-f]+):/gm)].map(([, id]) => BigInt(id as string));
}

/**
 * Ends a session from outside, as Curator's tests do: connects to it with its id and password, which the server derives
 * from the id, and closes it. Its own client may move it back before: then again.
 */
export async function endSession(host: ZooKeeperServer, id: bigint): Promise<void> {
  const sessionId = Buffer.alloc(8);
  sessionId.writeBigUInt64BE(BigInt.asUintN(64, id));
  const options = { sessionTimeout: 4_000, sessionId, sessionPassword: passwordOf(id) };
  for (let ended = false; !ended;) {
    const client = createClient(host.connection, options);
    ended = await new Promise<boolean>((resolve) => {
      client.once('connected', () => client.close());
      client.once('expired', () => resolve(true));
      client.once('disconnected', () => resolve(false));
      client.connect();
    });
    client.close();
  }
}

/** What `new java.util.Random(id ^ 0xB3415C00).nextBytes(new byte[16])` answers. */
function passwordOf(id: bigint): Buffer {
  const mask = (1n << 48n) - 1n;
  let seed = (id ^ 0xb3415c00n ^ 0x5deece66dn) & mask;
  const password = Buffer.alloc(16);
  for (let offset = 0; offset < 16; offset += 4) {
    seed = (seed * 0x5deece66dn + 0xbn) & mask;
    password.writeUInt32LE(Number(BigInt.asUintN(32, seed >> 16n)), offset);
  }
  return password;
}
