import type { Busy, Granted, QueueAnswer } from '../../../contracts/lock-backend.js';
import type { Row } from '../connection/postgres-link.js';

export const GONE = -1;

/** The status of an answer of `enqueue`, `beat` or `requeue`: 1 granted, 0 busy, -1 gone or not the owner. */
export function statusOf([status]: Row): number {
  return Number(status);
}

/** Reads the columns `status`, `token`, `tokens`, `remaining`, `others`, `place`, `holder`. */
export function queueAnswer([status, token, tokens, remaining, others, place, holder]: Row): QueueAnswer {
  if (Number(status) === 1) return granted(token, tokens, remaining, others);
  return {
    status: 'busy',
    unissued: Number(token),
    remaining: Math.max(0, Number(remaining)),
    first: Number(place) === 1,
    far: Number(place) === 0,
    owner: String(holder),
  } satisfies Busy;
}

export function granted(token: unknown, tokens: unknown, remaining: unknown, waiting: unknown): Granted {
  const first = Number(token);
  if (!Number.isSafeInteger(first) || first <= 0) {
    throw new Error(`PostgreSQL answered ${first}, which is not a fencing token`);
  }
  return {
    status: 'granted',
    tokens: { first, count: Number(tokens) },
    remaining: Number(remaining),
    waiting: Number(waiting),
  };
}

/** The status of an answer of `release` or `keep`. */
export function releaseStatus(answer: unknown): 'released' | 'gone' | 'taken' {
  return Number(answer) === 1 ? 'released' : Number(answer) === 0 ? 'gone' : 'taken';
}

/** The answer for several names: `released` only if all were. */
export function worstOf(statuses: readonly ('released' | 'gone' | 'taken')[]): 'released' | 'gone' | 'taken' {
  return (['taken', 'gone'] as const).find((status) => statuses.includes(status)) ?? 'released';
}
