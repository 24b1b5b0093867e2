import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { LockInfo, LockOptions } from 'nest-redis-lock';
import { workplace } from './packed.js';
import { run } from './run.js';

const REPOSITORY = fileURLToPath(new URL('../../..', import.meta.url));
const PROGRAM = fileURLToPath(new URL('../rolling/process.mjs', import.meta.url));

type Name = string | string[];

interface Pending {
  resolve(answer: unknown): void;
  reject(error: Error): void;
}

/** Unpacks a tarball beside the dependencies of the repository, and answers the folder of the package. */
export async function unpacked(tarball: string, name: string): Promise<string> {
  const folder = workplace(name);
  await mkdir(folder, { recursive: true });
  await run('tar', ['-xzf', tarball, '-C', folder], { cwd: folder });
  await symlink(join(REPOSITORY, 'node_modules'), join(folder, 'node_modules'));
  return join(folder, 'package');
}

/** A process with one build of the package; see process.mjs for what it does. */
export class VersionedProcess {
  output = '';
  private asked = 0;
  private readonly pending = new Map<number, Pending>();

  private constructor(private readonly child: ChildProcess) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => (this.output += data.toString()));
    }
    child.on('message', ({ id, answer, error }: { id: number; answer?: unknown; error?: string }) => {
      const pending = this.pending.get(id);
      if (error === undefined) pending?.resolve(answer);
      else pending?.reject(new Error(error));
    });
    child.on('exit', () => {
      for (const { reject } of this.pending.values())
        reject(new Error(`The process has ended; it said:\n${this.output}`));
    });
  }

  /** `folder` is that of the package. */
  static async start(folder: string, port: number): Promise<VersionedProcess> {
    const child = fork(PROGRAM, [folder, String(port)], { serialization: 'advanced', silent: true });
    const started = new VersionedProcess(child);
    await started.answer(0);
    return started;
  }

  contend(name: string, more: { callers: number; times: number; options?: LockOptions }): Promise<void> {
    return this.ask('contend', { name, options: {}, ...more });
  }

  acquire(name: Name, options?: LockOptions): Promise<{ owner: string; token: number }> {
    return this.ask('acquire', { name, options });
  }

  tryAcquire(name: Name, options?: LockOptions): Promise<boolean> {
    return this.ask('tryAcquire', { name, options });
  }

  holds(name: Name): Promise<boolean> {
    return this.ask('holds', { name });
  }

  release(name: Name): Promise<void> {
    return this.ask('release', { name });
  }

  forceRelease(name: string): Promise<boolean> {
    return this.ask('forceRelease', { name });
  }

  inspect(name: string): Promise<LockInfo | null> {
    return this.ask('inspect', { name });
  }

  /** Calls a method of the cache. */
  cache<T>(method: string, ...args: unknown[]): Promise<T> {
    return this.ask('cache', { method, args });
  }

  load<T>(
    key: string,
    value: T,
    more: { delay?: number; options?: object } = {},
  ): Promise<{ value: T; loaded: boolean }> {
    return this.ask('load', { key, value, ...more });
  }

  /** Rebuilds the Bloom filter. */
  rebuild(ids: readonly string[]): Promise<boolean> {
    return this.ask('rebuild', { ids });
  }

  /** Asks the Bloom filter. */
  mayHave(id: string): Promise<boolean> {
    return this.ask('mayHave', { id });
  }

  /** Rejects: the process ends by SIGKILL when all but the last deletion have happened. */
  dieBeforeDeletion(key: string, delay: number): Promise<never> {
    return this.ask('dieBeforeDeletion', { key, delay });
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await ended;
  }

  private ask<T>(task: string, given: object): Promise<T> {
    this.asked += 1;
    const answered = this.answer(this.asked);
    this.child.send({ id: this.asked, task, given });
    return answered as Promise<T>;
  }

  private answer(id: number): Promise<unknown> {
    return new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
  }
}
