import { FaultProxy } from '../fault-proxy.js';
import { startRedisServer, type RedisServer } from './redis-server.js';

/** Independent Redis servers, each behind a proxy. */
export interface RedlockNodes extends AsyncDisposable {
  readonly servers: readonly RedisServer[];
  readonly proxies: readonly FaultProxy[];
  /** The connections for `redlock`, through the proxies. */
  readonly urls: string[];
  /** Restarts a server on its port, without its data. */
  restart(index: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startRedlockNodes(count: number, args: string[] = []): Promise<RedlockNodes> {
  const servers = await Promise.all(Array.from({ length: count }, () => startRedisServer({ args })));
  const proxies = await Promise.all(servers.map(({ port }) => FaultProxy.start(port)));
  const stop = async () => {
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await Promise.all(servers.map((server) => server.stop()));
  };
  return {
    servers,
    proxies,
    urls: proxies.map(({ port }) => `redis://127.0.0.1:${port}`),
    restart: async (index) => {
      const { port, stop: stopServer } = servers[index] as RedisServer;
      await stopServer();
      servers[index] = await startRedisServer({ port, args });
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
