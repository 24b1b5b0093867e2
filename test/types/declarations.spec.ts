import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** What an application or a library exports, and so writes into its declarations. */
const EXPORTED = `
import {
  Cached, CacheEvict, CachePut, CacheService, DistributedLock, Idempotent, LeaderElection, LockService, OnlyLeader, RateLimit,
  RateLimiter, RedisLockModule, ScheduledLock, Semaphore, SemaphoreService,
} from 'nest-redis-lock';
export const Locked = (key: string) => DistributedLock(() => key, { wait: '1s', onBusy: ({ error }) => error.waited });
export const Order = DistributedLock('order:<0>');
export const Kept = Cached('product:<0>', { ttl: '1m', tags: ['product:<0>'], unless: (result) => result === null });
export const Put = CachePut('product:<0>', { ttl: '1m' });
export const Gone = CacheEvict('product:<0>');
export const Gpu = Semaphore('gpu', { permits: 2 });
export const Few = RateLimit('mail:<0>', { limit: 5, per: '1m' });
export const Once = Idempotent('pay:<0>');
export const Led = OnlyLeader('mails');
export const Nightly = ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: '1s' });
export const used = (c: CacheService, l: LockService, r: RateLimiter, s: SemaphoreService, e: LeaderElection) => ({
  sets: c.sets, pipeline: c.pipeline().get('a'), list: l.list(), inspect: l.inspect('a'), permit: s.acquire('a', { permits: 1 }),
  take: r.take('a', { limit: 1, per: '1s' }), leader: e.leader('a'),
});
export const [sync, async] = [RedisLockModule.forRoot, RedisLockModule.forRootAsync];
`;

/** What names, in declarations, types of entry points that the file does not import, or of none. */
const EXPORTED_ELSEWHERE = `
import type {
  BusyCall, CacheEvents, CacheOptions, DistributedLockOptions, LockBackend, LockError, LockEvents, OnlyLeaderOptions,
  PrimitiveEvents, RateLimitDecision, RateLimitOptions, RetryStrategy, SemaphoreTimeoutError, ThrottlerCounts,
} from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
export const events = (l: LockEvents, c: CacheEvents, p: PrimitiveEvents) => ({
  acquired: l.of('acquired'), all: c.all, leaders: p.leaders, lost: p.semaphores.of('lost'),
});
export const backend = memory();
export const store = (b: LockBackend, s: ReturnType<LockBackend['open']>) => ({ state: s.inspect({ name: 'a' }), traits: b.traits, queue: s.queue });
export const options = (c: CacheOptions, d: DistributedLockOptions, o: OnlyLeaderOptions, r: RateLimitOptions) => ({
  l1: c.l1, memory: c.memory, compression: c.compression, lock: c.defaults?.lock, redis: c.redis,
  onBusy: d.onBusy, elsewhere: o.elsewhere, onFailure: r.onFailure, limits: r.limits, first: r.limits?.[0],
});
export const rest = (e: LockError, r: RateLimitDecision, s: RetryStrategy, t: ThrottlerCounts) => ({
  code: e.code, by: r.decidedBy, delays: s(), count: t.increment('a', 1, 1, 1, 'default'),
});
export const waited = ({ error }: BusyCall, { error: other }: BusyCall<SemaphoreTimeoutError>) => [error.waited, other.keys];
`;

const root = mkdtempSync(join(realpathSync(tmpdir()), 'declarations-'));
afterAll(() => rmSync(root, { recursive: true }));

/** An application that has installed the package as it was built. */
beforeAll(() => {
  const installed = join(root, 'node_modules/nest-redis-lock');
  mkdirSync(installed, { recursive: true });
  for (const name of ['dist', 'package.json']) symlinkSync(join(REPOSITORY, name), join(installed, name));
  for (const name of ['@nestjs', '@types', 'ioredis', 'rxjs']) {
    symlinkSync(join(REPOSITORY, 'node_modules', name), join(root, 'node_modules', name));
  }
});

/** What the compiler writes for a file of it, and what it reports. */
function declarationsOf(code: string, kind: 'module' | 'commonjs'): { written: string; found: string[] } {
  const folder = join(root, kind);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: kind }));
  const file = join(folder, 'exported.ts');
  writeFileSync(file, code);
  const options: ts.CompilerOptions = {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    strict: true,
    declaration: true,
    experimentalDecorators: true,
    skipLibCheck: true,
    preserveSymlinks: true,
    types: ['node'],
    typeRoots: [join(root, 'node_modules/@types')],
  };
  const program = ts.createProgram([file], options);
  let written = '';
  const { diagnostics } = program.emit(undefined, (_path, text) => (written += text), undefined, true);
  const found = [...ts.getPreEmitDiagnostics(program, program.getSourceFile(file)), ...diagnostics];
  return { written, found: found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n')) };
}

describe.each(['module', 'commonjs'] as const)('an application of type %s', (kind) => {
  it('emits declarations of what wraps a decorator', () => {
    const { written, found } = declarationsOf(EXPORTED, kind);
    expect(found).toEqual([]);
    expect(written).toContain('export declare const Order:');
    expect(written).not.toMatch(/import\("(?!nest-redis-lock"|@nestjs\/common")/);
  });

  it('emits declarations that name types of entry points which it does not import, or of none', () => {
    const { written, found } = declarationsOf(EXPORTED_ELSEWHERE, kind);
    expect(found).toEqual([]);
    expect(written).toContain('import("nest-redis-lock/events").LockAcquired');
    expect(written).toContain('import("nest-redis-lock/backend").LockState');
    expect(written).not.toMatch(/import\("(?!nest-redis-lock(\/events|\/backend)?"|@nestjs\/common"|ioredis"|rxjs")/);
  });
});
