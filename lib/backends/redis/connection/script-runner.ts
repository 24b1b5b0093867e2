import type { Cluster, Redis } from 'ioredis';
import { EncodedCall, isText, type ScriptArgument, type ScriptCall, sendsEncoded } from './encoded-call.js';
import type { PrimarySeeker, ReadyQueue } from './ready-queue.js';
import type { RedisClient } from './redis-client.js';
import type { RedisScript, RunScript } from './redis-script.js';

const QUEUED =
  'the client queues commands for a MULTI that other code began with { pipeline: false }; ' +
  'give locks and cache a client of their own, such as client.duplicate()';

const CONNECT_EVENTS = ['ready', '+node'] as const;
const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

/** Sends scripts and commands on a client. */
export class ScriptRunner {
  /** How many commands were sent. */
  sent = 0;
  /** How many replies to them have arrived. */
  replies = 0;
  /** Whether a command may have keys of one slot only. */
  takesOneSlot: boolean;
  /** Grows with each lost connection, after which ioredis resends the commands without an answer. */
  disconnects = 0;
  private disconnectTime = 0;
  private readonly connectListeners = new Set<() => void>();
  /** The commands that are being sent again. */
  readonly repeated = new Set<RefusedForNow>();
  private readonly scriptClient: RedisClient;
  /** The client, where it takes commands that are encoded before. */
  private readonly encoding: Redis | undefined;
  private readonly persists: boolean;
  private readonly countDisconnect = () => {
    this.disconnects += 1;
    this.disconnectTime = performance.now();
  };

  constructor(
    readonly client: RedisClient,
    private readonly care: ConnectionCare = {},
  ) {
    this.persists = care.persists ?? true;
    this.takesOneSlot = client.isCluster;
    this.scriptClient = scriptClient(client);
    this.encoding = sendsEncoded(client) ? client : undefined;
    for (const event of DISCONNECT_EVENTS) client.on(event, this.countDisconnect);
  }

  /** When a connection was last lost, or could not be made (ms of the monotonic clock). */
  get disconnectedAt(): number {
    return this.disconnectTime;
  }

  /** Calls `listener` for each new connection, in a Cluster to each node. Returns a function that removes it. */
  whenConnected(listener: () => void): () => void {
    this.connectListeners.add(listener);
    for (const event of CONNECT_EVENTS) this.client.on(event, listener);
    return () => {
      this.connectListeners.delete(listener);
      for (const event of CONNECT_EVENTS) this.client.off(event, listener);
    };
  }

  run(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(script, keys, args, resolve, reject);
    });
  }

  /** As `run`, for a script that returns one string: resolves to its bytes. */
  runForBytes(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send({ ...script, bytes: true }, keys, args, resolve, reject);
    });
  }

  send(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    this.sendOnce(script, keys, args, answered, (error) => {
      if (!this.isRefusedForNow(error)) return failed(error);
      const again = (refused: (error: unknown) => void) => {
        const stepwise = (reason: unknown) => this.stepwise(script, keys, args, reason, answered, refused);
        this.sendOnce(script, keys, args, answered, stepwise);
      };
      const refused = new RefusedForNow(this, again, failed);
      this.stepwise(script, keys, args, error, answered, refused.again);
    });
  }

  /** Does the work in steps of one key each, where that was the reason and the script has such steps. */
  private stepwise(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    reason: unknown,
    answered: (reply: unknown) => void,
    refused: (error: unknown) => void,
  ): void {
    if (!script.stepwise || !(reason instanceof Error && isTryAgain(reason))) return refused(reason);
    const run: RunScript = (step, stepKeys, stepArgs) => this.run(step, stepKeys, stepArgs);
    script
      .stepwise(run, keys, args)
      .then((reply) => (reply === undefined ? refused(reason) : answered(reply)), refused);
  }

  private sendOnce(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    if (
      this.client.status !== 'ready' &&
      this.defers(() => this.sendOnce(script, keys, args, answered, failed), failed)
    ) {
      return;
    }
    const { encoding } = this;
    if (encoding?.status === 'ready' && isText(args)) {
      const call = { settle: answered, fail: failed };
      return this.askEncoded(encoding, new EncodedCall(script, keys, args), call, false);
    }
    const sent = script.bytes
      ? this.scriptClient.callBuffer('EVALSHA', script.sha1, keys.length, ...keys, ...args)
      : this.scriptClient.evalsha(script.sha1, keys.length, ...keys, ...args);
    this.ask(sent, answered, (error) => {
      if (isUnknownScript(error)) this.ask(whole(this.scriptClient, script, keys, args), answered, failed);
      else failed(error);
    });
  }

  /** As `send`, for a call that other servers may get, too. */
  sendEncoded(encoded: EncodedCall, call: ScriptCall): void {
    const { encoding } = this;
    if (encoding?.status === 'ready') this.askEncoded(encoding, encoded, call, this.persists);
    else this.sendCall(encoded, call);
  }

  sendCall({ script, keys, args }: EncodedCall, call: ScriptCall): void {
    const answered = (reply: unknown) => call.settle(reply);
    this.send(script, keys, args, answered, (error) => call.fail(error));
  }

  private askEncoded(client: Redis, encoded: EncodedCall, call: ScriptCall, persists: boolean): void {
    this.sent += 1;
    void client.sendCommand(encoded.command(new EncodedAttempt(this, client, encoded, call, persists)));
  }

  /**
   * Sends one command, on the client or on a node of its Cluster, as soon as there is a connection; repeats it while
   * the server refuses it for now.
   */
  command<T>(send: (client: RedisClient) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const ask = (failed: (error: unknown) => void) => {
        if (this.client.status !== 'ready' && this.defers(() => ask(failed), failed)) return;
        this.ask(send(this.client), resolve, failed);
      };
      ask((error) => {
        if (this.isRefusedForNow(error)) new RefusedForNow(this, ask, reject).again(error);
        else reject(error);
      });
    });
  }

  /** Takes a call that finds the client not ready: `true` when the `ReadyQueue` sends or fails it later. */
  defers(send: () => void, failed: (error: unknown) => void): boolean {
    return this.care.queue?.take(send, failed) ?? false;
  }

  /** Waits for the answer to a command that was sent, and looks after the connection meanwhile. */
  ask<T>(command: Promise<T>, answered: (reply: T) => void, failed: (error: unknown) => void): void {
    this.sent += 1;
    command.then(
      (reply) => this.replied(reply, { settle: answered, fail: failed }),
      (error: unknown) => {
        this.erred(error);
        failed(error);
      },
    );
  }

  replied(reply: unknown, call: ScriptCall): void {
    this.replies += 1;
    if (reply === 'QUEUED') call.fail(new Error(QUEUED));
    else call.settle(reply);
  }

  erred(error: unknown): void {
    this.replies += 1;
    if (error instanceof Error) this.refused(error);
  }

  /** Notes an error that Redis answered, alone or within a reply. */
  refused(error: Error): void {
    this.care.seeker?.answered(error);
  }

  /** Whether the command is to be sent again, as the server refused it for now. */
  isRefusedForNow(error: unknown): boolean {
    return this.persists && RefusedForNow.is(error, this.client);
  }

  /** Whether Redis refused a command for one of its keys, before it began: the other keys may be served. */
  refusesKeys(error: unknown): boolean {
    if (!(error instanceof Error)) return false;
    if (error.message.startsWith('CROSSSLOT ')) this.takesOneSlot = true;
    else if (!error.message.startsWith('NOPERM ')) return false;
    return true;
  }

  /** The answer to a command that is being sent again, if there is one. */
  get refusedForNow(): Error | undefined {
    for (const { last } of this.repeated) return last;
    return undefined;
  }

  close(): void {
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
    for (const listener of this.connectListeners) {
      for (const event of CONNECT_EVENTS) this.client.off(event, listener);
    }
  }
}

/** Looks after the connection of a client. */
export interface ConnectionCare {
  /**
   * Whether what the server refuses for now is sent again for a while.
   * @default true
   */
  readonly persists?: boolean;
  readonly queue?: ReadyQueue;
  readonly seeker?: PrimarySeeker;
}

type SendCommand = Cluster['sendCommand'];

/**
 * The client, for scripts. That of ioredis differs from the given one:
 *
 * - `enableAutoPipelining` is off. With it, ioredis 5 sends the scripts of one turn of the event loop to a Cluster as
 *   one pipeline, although their keys may lie in different slots: it takes the digest of a script for its key.
 * - On a Cluster, TRYAGAIN rejects at once. ioredis would repeat the command for seconds, as long as the slot is being
 *   migrated.
 */
function scriptClient(client: RedisClient): RedisClient {
  if (client.library !== undefined) return client;
  const options = { value: { ...client.options, enableAutoPipelining: false } };
  if (!client.isCluster) {
    // On the client itself, which keeps its state there.
    const send = (...command: Parameters<Redis['sendCommand']>) => (client as Redis).sendCommand(...command);
    return Object.create(client, { options, sendCommand: { value: send } }) as RedisClient;
  }
  const cluster = client as Cluster;
  const sendCommand: SendCommand = (command, ...where) => {
    const { reject } = command;
    const sent = cluster.sendCommand(command, ...where);
    const redirect = command.reject;
    command.reject = (error) => (isTryAgain(error) ? reject : redirect).call(command, error);
    return sent;
  };
  return Object.create(cluster, {
    options,
    sendCommand: { value: sendCommand },
  }) as Cluster;
}

/** Whether a node refused a script because some of its keys are at the other node of a slot that is being migrated. */
function isTryAgain(error: Error): boolean {
  return error.message.startsWith('TRYAGAIN ');
}

/** An encoded call on its way to one server: an object rather than functions, as every lock takes this path. */
class EncodedAttempt implements ScriptCall {
  constructor(
    private readonly scripts: ScriptRunner,
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
      whole(this.client, script, keys, args),
      (reply) => call.settle(reply),
      (reason) => this.refused(reason),
    );
  }

  private refused(error: unknown): void {
    const { scripts, encoded, call } = this;
    if (this.persists && scripts.isRefusedForNow(error)) scripts.sendCall(encoded, call);
    else call.fail(error);
  }
}

/** Sends the text of a script that the server does not know. */
function whole(
  client: RedisClient,
  { lua, bytes }: RedisScript,
  keys: readonly string[],
  args: readonly ScriptArgument[],
): Promise<unknown> {
  return bytes
    ? client.callBuffer('EVAL', lua, keys.length, ...keys, ...args)
    : client.eval(lua, keys.length, ...keys, ...args);
}

function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

/** Repeats a command while the server refuses it for now. */
export class RefusedForNow {
  /** What the server answered last. */
  last: Error | undefined;
  private until = 0;

  constructor(
    private readonly scripts: Pick<ScriptRunner, 'client' | 'repeated'>,
    private readonly send: (failed: (error: unknown) => void) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  /** A node of a Cluster refuses for good, with MOVED and ASK, where its client does not follow these. */
  static is(error: unknown, { isCluster }: Pick<RedisClient, 'isCluster'>): boolean {
    if (!(error instanceof Error) || !FOR_NOW.test(error.message)) return false;
    return isCluster || !ELSEWHERE.test(error.message);
  }

  readonly again = (error: unknown): void => {
    const now = performance.now();
    this.until ||= now + LONGEST;
    const { repeated, client } = this.scripts;
    if (now >= this.until || !RefusedForNow.is(error, client)) return this.failed(error);
    this.last = error as Error;
    repeated.add(this);
    setTimeout(() => {
      repeated.delete(this);
      this.send(this.again);
    }, PAUSE).unref();
  };
}

/**
 * What a server answers to a command that it can carry out soon: it is still loading its data, or a slot of a Cluster
 * is being migrated or has no master. A Cluster client repeats such commands a few times itself and then fails with the
 * last answer.
 */
const FOR_NOW =
  /^(Too many Cluster redirections\. Last error: \w+: )?(TRYAGAIN|ASK|MOVED|CLUSTERDOWN|MASTERDOWN|LOADING) /;
const ELSEWHERE = /^(ASK|MOVED) /;
/** Milliseconds between two sends. */
const PAUSE = 50;
/** How long (ms) a command is repeated: the default of `commandTimeout`. */
const LONGEST = 1_000;
