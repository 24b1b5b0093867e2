import type { Redis } from 'ioredis';
import type { EncodedCall, ScriptCall } from './encoded-call.js';
import { RefusedForNow } from './refused-for-now.js';

interface Sender {
  replied(reply: unknown, call: ScriptCall): void;
  erred(error: unknown): void;
  ask(command: Promise<unknown>, answered: (reply: unknown) => void, failed: (error: unknown) => void): void;
  sendCall(encoded: EncodedCall, call: ScriptCall): void;
}

/** An encoded call on its way to one server: an object rather than functions, as every lock takes this path. */
export class EncodedAttempt implements ScriptCall {
  constructor(
    private readonly scripts: Sender,
    private readonly client: Redis,
    private readonly encoded: EncodedCall,
    private readonly call: ScriptCall,
    /** Whether to send it again while the server refuses it for now. */
    private readonly persists: boolean,
  ) {}

  settle(reply: unknown): void {
    this.scripts.replied(reply, this.call);
  }

  fail(error: unknown): void {
    const { scripts, encoded, call } = this;
    const { script, keys, args } = encoded;
    scripts.erred(error);
    if (!isUnknownScript(error)) return this.refused(error);
    scripts.ask(
      this.client.eval(script.lua, keys.length, ...keys, ...args),
      (reply) => call.settle(reply),
      (reason) => this.refused(reason),
    );
  }

  private refused(error: unknown): void {
    const { scripts, encoded, call } = this;
    if (this.persists && RefusedForNow.is(error)) scripts.sendCall(encoded, call);
    else call.fail(error);
  }
}

export function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}
