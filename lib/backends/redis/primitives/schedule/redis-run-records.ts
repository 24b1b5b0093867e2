import {
  RECORD_TTL,
  type EndRunRequest,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../../../contracts/primitives/run-records.js';
import { lockKey } from '../../locks/redis-lock-keys.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import { LAST_RUN } from './last-run.lua.js';
import { RECORD_RUN } from './record-run.lua.js';

type Reply = [token?: string, by?: string, started?: string, ended?: string, succeeded?: string, overdue?: unknown];

/** One hash for each job, beside the key of its lock: `lock:{<name>}:run`. */
export class RedisRunRecords implements RunRecords {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly prefix: string | undefined,
  ) {}

  begin(request: RunRequest): Promise<void> {
    return this.record(request, 0, '');
  }

  end(request: EndRunRequest): Promise<void> {
    return this.record(request, request.took, request.succeeded ? 'yes' : 'no');
  }

  async last(name: string): Promise<RunRecord | null> {
    const reply = (await this.scripts.run(LAST_RUN, [this.keyOf(name)], [])) as Reply;
    const [token, by = '', started, ended, succeeded, overdue] = reply;
    if (token === undefined) return null;
    return {
      token: Number(token),
      by,
      startedAt: Number(started),
      end: ended ? { at: Number(ended), succeeded: succeeded === 'yes' } : undefined,
      overdue: Number(overdue) === 1,
    };
  }

  private async record(request: RunRequest, took: number, outcome: string): Promise<void> {
    const { name, token, by, atMostFor } = request;
    await this.scripts.run(RECORD_RUN, [this.keyOf(name)], [token, by, took, atMostFor, outcome, RECORD_TTL]);
  }

  private keyOf(name: string): string {
    return `${lockKey({ prefix: this.prefix, name })}:run`;
  }
}
