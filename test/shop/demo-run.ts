import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { StrategyResult } from '../../sample-app/demo/verdict.js';
import { madeProgram } from '../support/child.js';
import { descendants } from '../support/descendants.js';
import { eventually } from '../support/eventually.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');

/** PostgreSQL, which does not run as root, must get into it. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'demo-faults-'));
  chmodSync(folder, 0o755);
  return folder;
}

interface Ended {
  code: number | null;
  output: string;
  results: StrategyResult[];
  verdict: string;
}

/** A demo under way, of its sales alone. */
export class Demo {
  output = '';
  readonly ended: Promise<Ended>;
  private readonly child: ChildProcess;

  constructor(args: string[], env: Record<string, string>) {
    this.child = spawn(process.execPath, [PROGRAM, '--no-cache-reads', '--no-primitives', '--json', ...args], {
      env: { ...process.env, ...env },
    });
    let json = '';
    this.child.stdout?.on('data', (data: Buffer) => (json += data.toString()));
    this.child.stderr?.on('data', (data: Buffer) => (this.output += data.toString()));
    this.ended = new Promise((resolve) =>
      this.child.once('close', (code) => {
        const result = (json === '' ? { results: [], verdict: '' } : JSON.parse(json)) as Omit<
          Ended,
          'code' | 'output'
        >;
        resolve({ ...result, code, output: this.output });
      }),
    );
  }

  get pid(): number {
    return this.child.pid as number;
  }

  async shopsAre(count: number): Promise<number[]> {
    return eventually(
      async () => {
        const pids = await shopsBelow(this.pid);
        return pids.length === count ? pids : undefined;
      },
      { within: 120_000, every: 50 },
    );
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }
}

async function shopsBelow(pid: number): Promise<number[]> {
  const below = await descendants(pid);
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'pid=,args=']);
  const shops = stdout.split('\n').filter((line) => line.includes('dist-sample/shop/main.js'));
  return shops.map((line) => Number.parseInt(line, 10)).filter((each) => below.includes(each));
}
