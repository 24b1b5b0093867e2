import { createClient, type Client } from 'node-zookeeper-client';
import { zookeeper, type ZooKeeperOptions } from 'nest-redis-lock/zookeeper';
import type { LockBackend } from 'nest-redis-lock';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
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
