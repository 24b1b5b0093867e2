import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { eventually } from './eventually.js';

/** The copy of a program of the repository that loads its packages quickly: see programs.mjs. */
export function madeProgram(path: string): string {
  return join(process.env['PROGRAMS'] as string, path);
}

/** A Node.js program of `test/support/programs`, which uses the built package, with what it printed. */
export class Child {
  output = '';
  readonly exited: Promise<number | null>;

  private constructor(private readonly child: ChildProcess) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => (this.output += data.toString()));
    }
    this.exited = new Promise((resolve) => child.once('exit', resolve));
  }

  static start(program: string, args: string[] = [], more: Readonly<Record<string, string>> = {}): Child {
    return Child.run(madeProgram(`test/support/programs/${program}`), args, more);
  }

  /** Of a file with the packages as they are installed. */
  static run(path: string, args: string[] = [], more: Readonly<Record<string, string>> = {}): Child {
    const env = { ...process.env, ...more };
    return new Child(spawn(process.execPath, [path, ...args], { stdio: ['ignore', 'pipe', 'pipe'], env }));
  }

  get pid(): number {
    return this.child.pid as number;
  }

  /** Waits for a line that begins with `word`, and answers the JSON behind it. */
  async says<T>(word: string, within = 60_000): Promise<T> {
    try {
      const line = await eventually(() => this.output.split('\n').find((each) => each.startsWith(word)), { within });
      return JSON.parse(line.slice(word.length) || 'null') as T;
    } catch (error) {
      throw new Error(`The child did not say "${word}"; it said:\n${this.output}`, { cause: error });
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  async kill(): Promise<void> {
    this.child.kill('SIGCONT');
    this.child.kill('SIGKILL');
    await this.exited;
  }
}
