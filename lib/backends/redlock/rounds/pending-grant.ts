import type { AcquireAnswer, AcquireRequest, Busy, TokenRange } from '../../../contracts/lock-backend.js';
import { BatchedCall } from '../../batching/batched-call.js';
import type { ScriptCall } from '../../redis/scripting/encoded-call.js';
import type { TokenClock } from '../nodes/token-clock.js';
import { GRANT_TOKENS } from '../scripts/acquire.lua.js';
import type { Acquisition, MajorityGrant } from './acquisition.js';

const GIVEN_UP = 'the request was given up before it was granted';

/** Reserves fencing tokens from `least` on for the ticket of a request; `null` when it owns the names no more. */
export type ReserveTokens = (request: AcquireRequest, least: number) => Promise<TokenRange | null>;

/**
 * What becomes of a request for names. What a majority grants counts once its fencing tokens are reserved, while the
 * lease runs, and unless the request was given up meanwhile; else it is undone.
 */
export class PendingGrant implements ScriptCall {
  readonly answer = new BatchedCall((answer) => answer as AcquireAnswer);
  private readonly startedAt = performance.now();
  /** The first of the tokens that the nodes are asked to reserve. */
  private first = 0;

  constructor(
    private readonly request: AcquireRequest,
    private readonly acquisition: Acquisition,
    private readonly clock: TokenClock,
    private readonly reserve: ReserveTokens,
  ) {}

  /** Proposes tokens: the nodes are asked now. Returns the first one after them. */
  propose(): number {
    this.first = this.clock.propose(this.request.leastToken);
    return this.first + GRANT_TOKENS;
  }

  /** The nodes have decided. */
  settle(answer: MajorityGrant | Busy): void {
    const { time } = this.acquisition;
    if (time !== undefined) this.clock.heard(time, this.startedAt);
    if (answer.status === 'busy') return this.answer.settle(answer);
    const { raise, waiting } = answer;
    if (raise === 0) return this.granted(waiting, { first: this.first, count: GRANT_TOKENS });
    this.reserve(this.request, raise).then(
      (tokens) => {
        if (tokens) this.granted(waiting, tokens);
        else this.undo(new Error('the names were lost while fencing tokens were reserved'));
      },
      (error: unknown) => this.undo(error),
    );
  }

  fail(error: unknown): void {
    this.answer.fail(error);
  }

  /** The request was given up before the nodes were asked. */
  cancel(): void {
    this.fail(new Error(GIVEN_UP));
  }

  private granted(waiting: number, tokens: TokenRange): void {
    const { ttl } = this.request;
    const late = performance.now() - this.startedAt;
    if (this.acquisition.cancelled) this.undo(new Error(GIVEN_UP));
    else if (late < ttl) this.answer.settle({ status: 'granted', tokens, remaining: ttl, waiting });
    else this.undo(new Error(`the nodes granted after ${Math.round(late)} ms, when the lease had ended`));
  }

  private undo(error: unknown): void {
    this.acquisition.giveUp();
    this.fail(error);
  }
}
