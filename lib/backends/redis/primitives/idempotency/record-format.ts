import type {
  IdempotencyRecord,
  IdempotencyState,
  KeepResultRequest,
} from '../../../../contracts/primitives/idempotency-store.js';

const LETTERS = { running: 'r', value: 'v', undefined: 'u', error: 'e', unkept: 'x' } as const;
const STATES = new Map(Object.entries(LETTERS).map(([state, letter]) => [letter, state as IdempotencyState]));
const LINE_FEED = 10;

/** The text before the payload, which the scripts read. */
function headOf({ state, token, attempt, fingerprint }: Omit<IdempotencyRecord, 'payload'>): string {
  return `${LETTERS[state]} ${token} ${attempt} ${fingerprint}\n`;
}

/** The record as Redis keeps it. */
export function dataOf(record: KeepResultRequest['record']): string | Buffer {
  const head = headOf(record);
  const { payload } = record;
  return typeof payload === 'string' ? head + payload : Buffer.concat([Buffer.from(head), payload]);
}

/** @throws Error for data that this library did not write */
export function recordOf(data: Buffer): IdempotencyRecord {
  const end = data.indexOf(LINE_FEED);
  const [letter, token, attempt, fingerprint] = data.toString('latin1', 0, end).split(' ');
  const state = STATES.get(letter as (typeof LETTERS)[IdempotencyState]);
  if (end < 0 || state === undefined || fingerprint === undefined) {
    throw new Error('the key holds data that this library did not write; delete it');
  }
  return { state, token: Number(token), attempt: Number(attempt), fingerprint, payload: data.subarray(end + 1) };
}
