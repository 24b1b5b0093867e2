import type {
  BeginRequest,
  IdempotencyRecord,
  IdempotencyStore,
  KeepResultRequest,
} from '../../../contracts/primitives/idempotency-store.js';
import { ExpiringMap } from '../expiring-map.js';

/** The results of idempotent methods in the memory of the process. */
export class MemoryIdempotencyStore implements IdempotencyStore {
  private readonly records: ExpiringMap<IdempotencyRecord>;
  private readonly before: string;

  /** `records` are shared by all modules of the backend. */
  constructor(records: ExpiringMap<IdempotencyRecord>, prefix: string | undefined) {
    this.records = records;
    this.before = prefix === undefined ? '' : `${prefix}\u0000`;
  }

  async read(key: string): Promise<IdempotencyRecord | null> {
    const record = this.records.get(this.before + key);
    return record ? copyOf(record) : null;
  }

  async begin({ key, token, fingerprint, ttl }: BeginRequest): Promise<IdempotencyRecord> {
    const present = this.records.get(this.before + key);
    if (present && (present.state !== 'running' || present.token >= token)) return copyOf(present);
    const known = present?.fingerprint ?? '';
    if (present && known !== '' && fingerprint !== '' && known !== fingerprint) return copyOf(present);
    const begun: IdempotencyRecord = {
      state: 'running',
      token,
      attempt: (present?.attempt ?? 0) + 1,
      fingerprint: fingerprint === '' ? known : fingerprint,
      payload: Buffer.alloc(0),
    };
    this.records.set(this.before + key, begun, ttl);
    return begun;
  }

  async keep({ key, record, ttl, evenIfForgotten }: KeepResultRequest): Promise<boolean> {
    const present = this.records.get(this.before + key);
    if (!present && !evenIfForgotten) return false;
    if (present && present.state !== 'running') return present.token === record.token;
    if (present && present.token > record.token) return false;
    this.records.set(this.before + key, { ...record, payload: Buffer.from(record.payload) }, ttl);
    return true;
  }
}

/** A serializer may make values that share bytes with the payload. */
function copyOf(record: IdempotencyRecord): IdempotencyRecord {
  return { ...record, payload: Buffer.from(record.payload) };
}
