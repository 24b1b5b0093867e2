import type { LockQueue, QueueAnswer, RequeueRequest } from '../../contracts/lock-queue.js';
import type { Busy } from '../../contracts/lock-requests.js';
import type { Pending } from '../../contracts/pending.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { currentInstant, type Instant } from '../../timing/instant.js';
import type { Caller } from './caller.js';
import type { Contention } from './contention.js';

/** What a queue answers to one of its requests. */
type AnswerTo<Request extends 'beat' | 'requeue'> = ReturnType<LockQueue[Request]> extends Pending<infer A> ? A : never;

/** The longest claim (ms): what a dead process at the head of the queue costs the others. */
export const LONGEST_CLAIM = 1_000;
const SHORTEST_PERIOD = 25;
const LONGEST_PERIOD = 1_000;
/** The shortest time (ms) after which a waiter asks once more because its wait will end. */
const SHORTEST_PACE = 5;
/** How often (ms) a waiter asks while no message reaches its process. */
const UNREACHED_PERIOD = 50;

/** A caller that waits for longer than this (ms) can let other processes ask first: they do so within 50 ms. */
const PATIENT = 200;

/** One ticket that asks for the name, or waits for it. */
export interface Attempt {
  readonly ticket: string;
  /** Whether the ticket may wait in the queue at the backend. */
  readonly queues: boolean;
  /** The longest lease (ms) that the backend may grant it. */
  readonly ttl: number;
  /** Whether the backend has answered that the ticket waits. */
  answered: boolean;
  /** When the last request was sent to which the backend answered that the ticket waits: every grant is later. */
  base: Instant;
  /** A message with a fencing token below this reports an earlier grant. */
  unissued: number;
  heartbeat: NodeJS.Timeout | undefined;
  /** Readers of this process keep what it was granted, and release it. */
  leftToReaders: boolean;
}

/** An attempt whose first request is sent now. */
export function newAttempt(ticket: string, queues: boolean, ttl: number): Attempt {
  return {
    ticket,
    queues,
    ttl,
    answered: false,
    base: currentInstant(),
    unissued: 0,
    heartbeat: undefined,
    leftToReaders: false,
  };
}

/** The claim (ms) that a waiter is granted. */
export function claimOf(ttl: number): number {
  return Math.min(LONGEST_CLAIM, ttl);
}

/**
 * Milliseconds until the next heartbeat: half a claim, so that a lost message costs no more; twice that for a waiter
 * far from the head. The first waiter asks as soon as the owner's lease ends. Where the
 * queue sends no messages, every waiter asks at its `pace`.
 */
export function nextBeat(
  ttl: number,
  { first, far, unreached, remaining }: Pick<Busy, 'first' | 'far' | 'unreached' | 'remaining'>,
  pace?: number,
): number {
  if (pace !== undefined) return Math.min(pace, remaining + 1);
  const near = Math.max(claimOf(ttl) / 2, SHORTEST_PERIOD);
  if (unreached) return Math.min(near, UNREACHED_PERIOD);
  const period = far ? Math.min(2 * near, LONGEST_PERIOD) : near;
  return first && remaining < period ? remaining + 1 : period;
}

/** When a waiter asks again where the queue sends no messages: before its wait ends, unless that is in 5 ms. */
export function paceOf({ place, names }: Contention, caller: Caller): number | undefined {
  const pace = place.queue.pace?.({ prefix: place.backend.calls.prefix, name: names[0] });
  return pace === undefined ? undefined : Math.min(pace, Math.max(caller.remaining() / 2, SHORTEST_PACE));
}

/** Asks for the name under a new ticket. */
export function sendEnqueue(
  { names, place }: Contention,
  { ticket, ttl, queues }: Attempt,
  caller: Caller,
  answered: (answer: QueueAnswer) => void,
  failed: (error: LockBackendError) => void,
): void {
  const { calls } = place.backend;
  const { options } = caller;
  const claim = queues ? claimOf(options.ttl) : undefined;
  const patient = caller.remaining() > PATIENT;
  const call = asked(() => place.queue.enqueue({ prefix: calls.prefix, name: names[0], ticket, ttl, claim, patient }));
  calls.send('acquire', names, call, answered, failed, options.commandTimeout);
}

/** A queue of the application's may throw instead of answering. */
function asked<Answer>(ask: () => Pending<Answer>): Pending<Answer> {
  try {
    return ask();
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Callers of this process that come now ask after those of others, where no queue puts them in order. */
export function giveWay({ place, names }: Contention): void {
  place.queue.giveWay?.({ prefix: place.backend.calls.prefix, name: names[0] });
}

/** Sends a heartbeat of the attempt. */
export function sendBeat(
  { names, place, callers }: Contention,
  { ticket, ttl }: Attempt,
  answered: (answer: AnswerTo<'beat'>) => void,
  failed: (error: LockBackendError) => void,
): void {
  const { calls } = place.backend;
  const call = asked(() => place.queue.beat({ prefix: calls.prefix, name: names[0], ticket, ttl }));
  calls.send('acquire', names, call, answered, failed, callers.first?.options.commandTimeout);
}

/** Hands the name over to another process, and queues again under another ticket. */
export function sendRequeue(
  { names, place }: Contention,
  request: Pick<RequeueRequest, 'ticket' | 'again' | 'claim'>,
  answered: (answer: AnswerTo<'requeue'>) => void,
  failed: (error: LockBackendError) => void,
): void {
  const { calls } = place.backend;
  const call = asked(() => place.queue.requeue({ prefix: calls.prefix, name: names[0], ...request }));
  calls.send('release', names, call, answered, failed);
}
