import { spawn, type ChildProcess } from 'node:child_process';
import { eventually } from './eventually.js';

/** A program on a terminal of its own (`script` makes it), with what it showed. */
export class Terminal {
  /** Each piece as it came, with the time (ms). */
  readonly pieces: { readonly at: number; readonly text: string }[] = [];
  readonly ended: Promise<number | null>;

  private constructor(private readonly child: ChildProcess) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => this.pieces.push({ at: performance.now(), text: data.toString() }));
    }
    this.ended = new Promise((resolve) => child.once('close', resolve));
  }

  static start(command: readonly string[], { columns = 200, rows = 20, env = {} } = {}): Terminal {
    // `exec`, so that the status is that of the program: a shell that waits for it would end by Ctrl-C itself.
    const line = `stty cols ${columns} rows ${rows}; exec ${command.map((each) => `'${each}'`).join(' ')}`;
    return new Terminal(
      spawn('script', ['-qec', line, '/dev/null'], { stdio: 'pipe', env: { ...process.env, ...env } }),
    );
  }

  get shown(): string {
    return this.pieces.map(({ text }) => text).join('');
  }

  type(text: string): void {
    this.child.stdin?.write(text);
  }

  async shows(text: string): Promise<void> {
    await eventually(() => this.shown.includes(text), { within: 60_000 });
  }
}
