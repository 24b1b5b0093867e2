import type { ChildProcess } from 'node:child_process';
import { madeProgram } from './child.js';
import { eventually } from './eventually.js';
import { spawnGuarded } from './servers/server-process.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');

/** `npm run demo -- --live`, on servers of its own unless `env` names others. */
export class LiveDemo {
  output = '';
  readonly ended: Promise<number | null>;
  private readonly child: ChildProcess;

  private constructor(args: readonly string[], env: Record<string, string>) {
    this.child = spawnGuarded({
      command: process.execPath,
      args: [PROGRAM, '--live', ...args],
      env: { REDIS_URL: '', DATABASE_URL: '', ...env },
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (data: Buffer) => (this.output += data.toString()));
    }
    this.ended = new Promise((resolve) => this.child.once('close', resolve));
  }

  static async start(args: readonly string[], env: Record<string, string> = {}): Promise<LiveDemo> {
    const demo = new LiveDemo(args, env);
    await eventually(
      () => {
        if (demo.child.exitCode !== null) throw new Error(`The demo ended: ${demo.output}`);
        return demo.output.includes('The page is at');
      },
      { within: 120_000, every: 50 },
    );
    return demo;
  }

  get pid(): number {
    return this.child.pid as number;
  }

  get url(): string {
    return /The page is at (http:\S+)\/ /.exec(this.output)?.[1] ?? '';
  }

  post(path: string, body?: object, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method: 'POST',
      headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
      ...(body && { body: JSON.stringify(body) }),
    });
  }

  /** As Ctrl-C does. */
  async interrupt(): Promise<number | null> {
    this.child.kill('SIGINT');
    return this.ended;
  }
}
