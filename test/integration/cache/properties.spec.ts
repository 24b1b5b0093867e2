import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { type CacheEntryOptions, type CacheService, CacheTimeoutError } from 'nest-redis-lock';
import {
  type CacheInstance,
  type ClientWithBus,
  clientWithBusThrough,
  closeCaches,
  openCache,
} from '../../support/cache-instance.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { Gate } from '../../support/gate.js';
import { startRedisServer } from '../../support/servers/redis-server.js';

/** One step of a history. `app` and `key` are indexes; `pause` is ms until the next step. */
type CacheStep = { readonly app: number; readonly key: number; readonly pause: number } & (
  | { readonly kind: 'read'; readonly held: boolean }
  | { readonly kind: 'let' }
  | { readonly kind: 'write'; readonly by: 'invalidate' | 'mutate' | 'tag' | 'prefix' }
  | { readonly kind: 'expire' | 'crash' | 'cut' | 'deafen' }
);

/**
 * A database of versions behind caches, to which steps happen, and which tells every read that was too old: in
 * `strong`, older than the last invalidation that had ended when the read began; else, than the last one of this
 * application, or one of another of which this one had got the message.
 */
class CacheModel {
  readonly findings: string[] = [];
  private readonly versions: number[] = [];
  /** The least version that a read of an application may return, by application and key. */
  private readonly floors = new Map<string, number>();
  private readonly tasks = new Set<Promise<void>>();
  private gates: Gate[] = [];
  private ending = false;
  private readonly instances: readonly CacheInstance[];
  private readonly clients: readonly ClientWithBus[];
  private readonly admin: Redis;
  private readonly apps: readonly CacheService[];

  constructor(
    { instances, clients, admin }: World,
    private readonly keys: readonly string[],
    private readonly entryOptions: CacheEntryOptions,
    private readonly tagged: boolean,
  ) {
    this.instances = instances;
    this.clients = clients;
    this.admin = admin;
    this.apps = instances.map(({ cache }) => cache);
    for (const _ of keys) this.versions.push(1);
  }

  async run(steps: readonly CacheStep[]): Promise<void> {
    for (const step of steps) {
      await this.step(step);
      if (step.pause > 0) await sleep(step.pause);
    }
    await this.end();
  }

  private async step(step: CacheStep): Promise<void> {
    switch (step.kind) {
      case 'read':
        return this.track(this.read(step.app, step.key, step.held ? 'held' : 'quick'));
      case 'crash':
        return this.track(this.read(step.app, step.key, 'never'));
      case 'write':
        return this.track(this.write(step.app, step.key, step.by));
      case 'let':
        return this.gates.shift()?.open();
      case 'expire':
        await this.admin.pexpire(`cache:${this.keys[step.key]}`, 1);
        return;
      case 'deafen':
        await this.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
        return;
      case 'cut':
        return this.cut(step.app);
    }
  }

  /** When all is quiet, everybody must see what is there. */
  private async end(): Promise<void> {
    this.ending = true;
    for (const gate of this.gates) gate.open();
    await Promise.all(this.tasks);
    await eventually(
      () => this.instances.every(({ engine }) => engine.busConnected && engine.stats().unconfirmedInvalidations === 0),
      {
        every: 2,
      },
    );
    await Promise.all(this.clients.map((client) => client.heard()));
    for (const [key, name] of this.keys.entries()) {
      for (const [index, app] of this.apps.entries()) {
        const version = await app.getOrSet(name, () => this.versions[key], this.optionsOf(name));
        if (version !== this.versions[key]) {
          this.findings.push(`at rest, app ${index} has version ${version} of ${name}, not ${this.versions[key]}`);
        }
      }
    }
  }

  private async read(app: number, key: number, loader: 'quick' | 'held' | 'never'): Promise<void> {
    const cache = this.apps[app] as CacheService;
    const name = this.keys[key] as string;
    const least = this.floors.get(`${app} ${key}`) ?? 0;
    const version = await cache.getOrSet(
      name,
      async ({ signal }) => {
        const found = this.versions[key] as number;
        if (loader === 'never') await new Promise((resolve) => signal.addEventListener('abort', resolve));
        if (loader === 'held' && !this.ending) {
          const gate = new Gate();
          this.gates.push(gate);
          await gate.opened;
        }
        return found;
      },
      this.optionsOf(name),
    );
    if (version < least) this.findings.push(`app ${app} read version ${version} of ${name}, older than ${least}`);
  }

  private async write(app: number, key: number, by: 'invalidate' | 'mutate' | 'tag' | 'prefix'): Promise<void> {
    const cache = this.apps[app] as CacheService;
    const name = this.keys[key] as string;
    let version = 0;
    const bump = () => {
      version = (this.versions[key] as number) + 1;
      this.versions[key] = version;
    };
    if (by === 'mutate') {
      await cache.mutate(name, async () => {
        bump();
        await sleep(1);
      });
    } else {
      bump();
      if (by === 'invalidate') await cache.invalidate(name);
      else if (by === 'prefix') await cache.deleteByPrefix(name);
      else await cache.deleteByTag(`tag of ${name}`);
    }
    this.raiseFloor(app, key, version);
    // What Redis has not confirmed has not ended for the others.
    if (cache.stats().unconfirmedInvalidations > 0) return;
    await Promise.all(
      this.clients.map(async (client, other) => {
        if (this.entryOptions.consistency !== 'strong') await client.heard();
        this.raiseFloor(other, key, version);
      }),
    );
  }

  private raiseFloor(app: number, key: number, version: number): void {
    const place = `${app} ${key}`;
    this.floors.set(place, Math.max(version, this.floors.get(place) ?? 0));
  }

  private optionsOf(name: string): CacheEntryOptions {
    return this.tagged ? { ...this.entryOptions, tags: [`tag of ${name}`] } : this.entryOptions;
  }

  /** Breaks the connection that the application has for commands. */
  private async cut(app: number): Promise<void> {
    const clients = String(await this.admin.client('LIST'));
    for (const line of clients.split('\n')) {
      const [, id] = /^id=(\d+) /.exec(line) ?? [];
      if (id && line.includes(` name=app-${app} `) && line.includes(' sub=0 '))
        await this.admin.client('KILL', 'ID', id);
    }
  }

  private track(task: Promise<void>): void {
    const tracked = task.catch((error: unknown) => {
      // Who joined a load that crashed shares its end.
      if (!(error instanceof CacheTimeoutError)) this.findings.push(String(error));
    });
    this.tasks.add(tracked);
    void tracked.then(() => this.tasks.delete(tracked));
  }
}

const APPS = 2;
const KEYS = 2;
/** More than usual, with `CACHE_RUNS`. */
const RUNS = Number(process.env['CACHE_RUNS'] ?? 60);
/** What messages take (ms) on their way to the second application. */
const SLOW_BUS = 12;

interface World extends AsyncDisposable {
  readonly admin: Redis;
  readonly clients: readonly ClientWithBus[];
  readonly instances: readonly CacheInstance[];
}

/** Applications on a server of their own. */
async function openWorld(): Promise<World> {
  const server = await startRedisServer();
  const admin = new Redis(server.url);
  const proxy = await FaultProxy.start(server.port);
  const clients = [server.port, proxy.port].map((busPort, index) =>
    clientWithBusThrough({ port: server.port, connectionName: `app-${index}`, retryStrategy: () => 5 }, busPort),
  );
  const open = (redis: Redis) => openCache({ redis, cache: { l1: {}, commandTimeout: '2s' } });
  const instances = await Promise.all(clients.map(open));
  proxy.slow({ reply: SLOW_BUS });
  const close = async () => {
    await closeCaches(instances);
    for (const client of clients) client.disconnect();
    await proxy.stop();
    admin.disconnect();
    await server.stop();
  };
  return { admin, clients, instances, [Symbol.asyncDispose]: close };
}

const place = { app: fc.nat(APPS - 1), key: fc.nat(KEYS - 1), pause: fc.nat(3) };
const step = (writes: readonly ('invalidate' | 'mutate' | 'tag' | 'prefix')[]): fc.Arbitrary<CacheStep> =>
  fc.oneof(
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('read' as const), held: fc.boolean(), ...place }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('let' as const), ...place }) },
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant('write' as const), by: fc.constantFrom(...writes), ...place }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('expire' as const), ...place }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('crash' as const, 'cut', 'deafen'), ...place }) },
  );

/** Leases and loads that end soon, so that a history with crashes does. */
const SHORT: CacheEntryOptions = { lock: { lease: 100 }, loaderTimeout: 150 };

async function holds(options: CacheEntryOptions, tagged: boolean): Promise<void> {
  const writes = ['invalidate', 'mutate', 'prefix'] as const;
  const steps = fc.array(step(tagged ? [...writes, 'tag', 'tag'] : writes), {
    minLength: 4,
    maxLength: 40,
    size: 'max',
  });
  await using world = await openWorld();
  let histories = 0;
  const history = fc.asyncProperty(steps, async (all) => {
    histories += 1;
    const keys = Array.from({ length: KEYS }, (_, key) => `history:${histories}:${key}`);
    const model = new CacheModel(world, keys, { ...SHORT, ...options }, tagged);
    await model.run(all);
    expect(model.findings).toEqual([]);
  });
  await fc.assert(history, { numRuns: RUNS, endOnFailure: true });
}

it.concurrent('a strong read is never older than the last invalidation that had ended when it began', () =>
  holds({ consistency: 'strong' }, false),
);

it.concurrent('an eventual read is older than that only until the message has arrived', () => holds({}, false));

it.concurrent('neither is a read of tagged values', () => holds({}, true));

it.concurrent('neither is a read that may be answered with a stale value', () =>
  holds({ ttl: 15, staleTtl: '1m', refreshAhead: 0.5 }, false),
);
