import { fork } from 'node:child_process';
import { once } from 'node:events';

const LOG_SIZE = 4_000;
const running = new Set();
process.once('exit', killWorkers);

export function killWorkers() {
  for (const worker of running) worker.kill();
}

/**
 * A process that does one job: it is asked to prepare it, and then to run it, again and again where the job takes
 * requests.
 */
export class WorkerProcess {
  #child;
  #ended;
  #log = '';

  constructor(execArgv = []) {
    const program = new URL('./main.mjs', import.meta.url);
    const stdio = ['ignore', 'ignore', 'pipe', 'ipc'];
    this.#child = fork(program, { execArgv, stdio, serialization: 'advanced' });
    this.#child.stderr.on('data', (data) => (this.#log = (this.#log + data).slice(-LOG_SIZE)));
    // Reported to the next request.
    this.#child.on('error', () => {});
    this.#ended = once(this.#child, 'close').then(([code, signal]) => {
      running.delete(this);
      throw new Error(`its process ended with ${signal ?? code}${lastWords(this.#log)}`);
    });
    this.#ended.catch(() => {});
    running.add(this);
  }

  prepare(job, settings, patience) {
    return this.#ask({ job, settings }, patience);
  }

  run(patience, request) {
    return this.#ask({ request }, patience);
  }

  kill() {
    this.#child.kill('SIGKILL');
  }

  async end() {
    this.kill();
    await this.#ended.catch(() => {});
  }

  async #ask(question, patience) {
    const limit = AbortSignal.timeout(patience);
    const answered = once(this.#child, 'message', { signal: limit });
    this.#child.send(question);
    let answer;
    try {
      [answer] = await Promise.race([answered, this.#ended]);
    } catch (error) {
      if (limit.aborted) throw new Error(`stuck: no answer within ${Math.round(patience / 1_000)} s`, { cause: error });
      throw error;
    }
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer.result;
  }
}

/** The error that Node.js ended with, or what the process wrote last. */
function lastWords(log) {
  const lines = log.split('\n').filter((line) => line.trim() !== '');
  const words = lines.findLast((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1);
  return words === undefined ? '' : `: ${words}`;
}

/** Several workers with one job. */
export class WorkerTeam {
  #workers;
  #patience;

  constructor(count, patience, execArgv) {
    this.#workers = Array.from({ length: count }, () => new WorkerProcess(execArgv));
    this.#patience = patience;
  }

  /** Lets all prepare the job, each with its settings. */
  async prepare(job, settings) {
    await Promise.all(this.#workers.map((worker, index) => worker.prepare(job, settings[index], this.#patience)));
  }

  /** Lets all run the job at once; answers their results. */
  run() {
    return Promise.all(this.#workers.map((worker) => worker.run(this.#patience)));
  }

  async end() {
    await Promise.all(this.#workers.map((worker) => worker.end()));
  }
}

/** Starts a worker for each settings, lets all prepare the job and then run it at once; answers their results. */
export async function runTogether({ job, settings, execArgv, patience, onPrepared = async () => {} }) {
  const team = new WorkerTeam(settings.length, patience, execArgv);
  try {
    await team.prepare(job, settings);
    await onPrepared();
    return await team.run();
  } finally {
    await team.end();
  }
}
