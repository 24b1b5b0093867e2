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

const root = mkdtempSync(join(realpathSync(tmpdir()), 'declarations-'));
afterAll(() => rmSync(root, { recursive: true }));

/** An application that has installed the package as it was built. */
function application(): string {
  const installed = join(root, 'node_modules/nest-redis-lock');
  mkdirSync(installed, { recursive: true });
  for (const name of ['dist', 'package.json']) symlinkSync(join(REPOSITORY, name), join(installed, name));
  for (const name of ['@nestjs', '@types', 'ioredis', 'rxjs']) {
    symlinkSync(join(REPOSITORY, 'node_modules', name), join(root, 'node_modules', name));
  }
  writeFileSync(join(root, 'package.json'), '{ "type": "module" }');
  const file = join(root, 'exported.ts');
  writeFileSync(file, EXPORTED);
  return file;
}

it('what wraps a decorator emits declarations in an application', () => {
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
  const file = application();
  const program = ts.createProgram([file], options);
  let written = '';
  const { diagnostics } = program.emit(undefined, (_path, text) => (written += text), undefined, true);
  const found = [...ts.getPreEmitDiagnostics(program, program.getSourceFile(file)), ...diagnostics];
  expect(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([]);
  expect(written).toContain('export declare const Order:');
  expect(written).not.toMatch(/import\("(?!nest-redis-lock"|@nestjs\/common")/);
});
