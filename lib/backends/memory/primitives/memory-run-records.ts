import {
  RECORD_TTL,
  type EndRunRequest,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../../contracts/primitives/run-records.js';
import type { ExpiringMap } from '../expiring-map.js';

/** A run in the memory of the process. */
export type KnownRun = Omit<RunRecord, 'overdue'> & { readonly due: number };

/** As the Redis backend keeps them. */
export class MemoryRunRecords implements RunRecords {
  constructor(
    private readonly records: ExpiringMap<KnownRun>,
    private readonly prefix = '',
  ) {}

  async begin(request: RunRequest): Promise<void> {
    this.record(request, 0);
  }

  async end(request: EndRunRequest): Promise<void> {
    this.record(request, request.took, request.succeeded);
  }

  async last(name: string): Promise<RunRecord | null> {
    const known = this.records.get(this.keyOf(name));
    if (!known) return null;
    const { due, ...record } = known;
    return { ...record, overdue: Date.now() >= due };
  }

  private record({ name, token, by, atMostFor }: RunRequest, took: number, succeeded?: boolean): void {
    const key = this.keyOf(name);
    const known = this.records.get(key);
    if (known && known.token > token) return;
    const now = Date.now();
    const startedAt = now - took;
    const run = known?.token === token ? known : { token, by, startedAt, end: undefined, due: startedAt + atMostFor };
    const end = run.end ?? (succeeded === undefined ? undefined : { at: now, succeeded });
    this.records.set(key, { ...run, end }, RECORD_TTL);
  }

  private keyOf(name: string): string {
    return `${this.prefix}\u0000${name}`;
  }
}
