import { randomUUID } from 'node:crypto';
import {
  encodedCall,
  encodingClient,
  type EncodingClient,
  type RunCounter,
  type ScriptArgument,
  type ScriptCall,
  type ScriptRequest,
  type SentCall,
} from './script-batch.js';
import { isTryAgain, type PrimarySeeker, type ReadyQueue, RefusedForNow, scriptClient } from './ready-queue.js';
import { mastersOf, type RedisClient, type RedisNode } from './redis-client.js';
import { type RedisScript, type RunScript, sendDigest, sendText } from './redis-script.js';

const QUEUED =
  'the client queues commands for a MULTI that other code began with { pipeline: false }; ' +
  'give locks and cache a client of their own, such as client.duplicate()';

/** What a reply shows that belongs to another call. */
export const MIXED_UP = 'a proxy or a client has lost or doubled a reply, so that each counts for another command';

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
  /** Of how many values the reply to the last read is a list; 0: it is one value. */
  lastRead = -1;
  /** Grows with each lost connection, after which ioredis resends the commands without an answer. */
  disconnects = 0;
  /** When a connection was last lost, or could not be made (ms of the monotonic clock). */
  disconnectedAt = 0;
  private readonly connectListeners = new Set<() => void>();
  /** The commands that are being sent again. */
  readonly repeated = new Set<RefusedForNow>();
  private readonly scriptClient: RedisClient;
  /** The client, where it takes commands that are encoded before. */
  private readonly encoding: EncodingClient | undefined;
  private readonly persists: boolean;
  /** How the ids of the calls begin: a connection may bring what belongs to another process. */
  private readonly own = `${randomUUID().slice(0, 8)}:`;
  /** How many ids were given. */
  private ids = 0;
  private readonly countDisconnect = () => {
    this.disconnects += 1;
    this.disconnectedAt = performance.now();
  };

  constructor(
    readonly client: RedisClient,
    private readonly care: ConnectionCare = {},
  ) {
    this.persists = care.persists ?? true;
    this.takesOneSlot = client.isCluster;
    this.scriptClient = scriptClient(client);
    this.encoding = encodingClient(client);
    for (const event of DISCONNECT_EVENTS) client.on(event, this.countDisconnect);
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

  /** As `run`, for a script without keys, at one node of a Cluster or on the client itself. */
  runOn(node: RedisNode, script: RedisScript, args: readonly ScriptArgument[]): Promise<unknown> {
    if ((node as RedisClient) === this.client) return this.run(script, [], args);
    return this.commanded((failed, resolve) => this.sendOn(node, script, [], args, resolve, failed));
  }

  /** `once`: it is not sent again while the server refuses it for now. */
  send(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    givenUp: (error: unknown) => void,
    once = false,
  ): void {
    const failed = once ? givenUp : (error: unknown) => this.repeat(script, keys, args, error, answered, givenUp);
    if (this.client.status !== 'ready') {
      const elsewhere = this.care.spare?.();
      if (elsewhere) return elsewhere.send(script, keys, args, answered, failed);
      if (this.defers(() => this.send(script, keys, args, answered, failed, true), failed)) return;
    }
    if (this.sendEncoded({ script, keys, args }, { settle: answered, fail: failed })) return;
    this.sendOn(this.scriptClient, script, keys, args, answered, failed);
  }

  private sendOn(
    client: RedisClient,
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    const call = { script, keys, args, id: this.own + (this.ids += 1) };
    const erred = (error: unknown) => {
      if (isUnknownScript(error))
        this.ask(
          begun(() => sendText(client, call)),
          answered,
          failed,
          call.id,
        );
      else failed(error);
    };
    this.ask(
      begun(() => sendDigest(client, call)),
      answered,
      erred,
      call.id,
    );
  }

  /** Sends a script again while the server refuses it for now. */
  private repeat(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    error: unknown,
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    if (!this.isRefusedForNow(error)) return failed(error);
    const again = (refused: (error: unknown) => void) => {
      const stepwise = (reason: unknown) => this.stepwise(script, keys, args, reason, answered, refused);
      this.send(script, keys, args, answered, stepwise, true);
    };
    const refused = new RefusedForNow(this, again, failed);
    this.stepwise(script, keys, args, error, answered, refused.again);
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

  /**
   * Sends a call encoded, where the client takes that; else returns `false`. `batch`: whose run it is, in which it is
   * the only call.
   */
  sendEncoded(request: ScriptRequest, call: ScriptCall, batch?: RunCounter): boolean {
    const { encoding } = this;
    if (encoding?.client.status !== 'ready') return false;
    try {
      if (request.encoded === undefined) request.encoded = encodedCall(request);
      if (!request.encoded) return false;
      const sent = { request, call, batch, id: this.own + (this.ids += 1) };
      void encoding.client.sendCommand(new encoding.Command(request.encoded, sent, this));
      this.sent += 1;
    } catch (error) {
      // As where an argument is too long for a string. Later: the caller attaches its listeners after this returns.
      queueMicrotask(() => this.failed({ request, call, batch }, error));
    }
    return true;
  }

  /** As `send`, for the only call in a run of its batch. */
  sendAlone(sent: Omit<SentCall, 'id'>): void {
    const { script, keys, args } = sent.request;
    const answered = (answer: unknown) => this.answered(sent, answer);
    this.send(script, keys, args, answered, (error) => this.failed(sent, error));
  }

  /** The server has replied to an encoded call. */
  settled(sent: SentCall, reply: unknown): void {
    const answer = this.replied(reply, sent.id);
    if (answer instanceof Error) this.refusedAlone(sent, answer);
    else this.answered(sent, answer);
  }

  /** An encoded call has failed. */
  rejected(sent: SentCall, error: unknown): void {
    this.erred(error);
    if (!isUnknownScript(error)) return this.refusedAlone(sent, error);
    const { script, keys, args } = sent.request;
    this.ask(
      begun(() => sendText(this.client, { script, keys, args, id: sent.id })),
      (answer) => this.answered(sent, answer),
      (reason) => this.refusedAlone(sent, reason),
      sent.id,
    );
  }

  private refusedAlone(sent: SentCall, error: unknown): void {
    if (sent.batch && this.isRefusedForNow(error)) this.sendAlone(sent);
    else this.failed(sent, error);
  }

  private answered({ call, batch }: Omit<SentCall, 'id'>, answer: unknown): void {
    if (batch) batch.underWay -= 1;
    call.settle(answer);
  }

  private failed({ call, batch }: Omit<SentCall, 'id'>, error: unknown): void {
    if (batch) batch.underWay -= 1;
    call.fail(error);
  }

  /**
   * Sends one command, on the client or on a node of its Cluster, as soon as there is a connection; repeats it while
   * the server refuses it for now.
   */
  command<T>(send: (client: RedisClient) => Promise<T>): Promise<T> {
    return this.commanded((failed, resolve) =>
      this.ask(
        begun(() => send(this.client)),
        resolve,
        failed,
      ),
    );
  }

  /** The masters, as soon as the client knows them. */
  masters(): Promise<readonly RedisNode[]> {
    return this.command(async (client) => mastersOf(client));
  }

  private commanded<T>(send: (failed: (error: unknown) => void, resolve: (answer: T) => void) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      const ask = (failed: (error: unknown) => void) => {
        if (this.client.status !== 'ready' && this.defers(() => ask(failed), failed)) return;
        send(failed, resolve);
      };
      ask((error) => {
        if (this.isRefusedForNow(error)) new RefusedForNow(this, ask, reject).again(error);
        else reject(error);
      });
    });
  }

  /** Whether scripts go over another connection, because the application has ended its client. */
  get usesSpare(): boolean {
    return this.care.spare?.() !== undefined;
  }

  /** Takes a call that finds the client not ready: `true` when the `ReadyQueue` sends or fails it later. */
  defers(send: () => void, failed: (error: unknown) => void): boolean {
    return this.care.queue?.take(send, failed) ?? false;
  }

  /**
   * Waits for the answer to a command that was sent, and looks after the connection meanwhile. `id`: of a script, which
   * answers it.
   */
  ask<T>(command: Promise<T>, answered: (answer: T) => void, failed: (error: unknown) => void, id?: string): void {
    this.sent += 1;
    command.then(
      (reply) => {
        const answer = this.replied(reply, id);
        if (answer instanceof Error) failed(answer);
        else answered(answer as T);
      },
      (error: unknown) => {
        this.erred(error);
        failed(error);
      },
    );
  }

  /**
   * Returns the answer in a reply, or why there is none. Only the order of the replies says which command each belongs
   * to. Where one is lost or comes twice on the way, all later ones belong to other commands, until there is another
   * connection. So the reply of a script says which call it answers.
   */
  replied(reply: unknown, id?: string): unknown {
    this.replies += 1;
    if (reply === 'QUEUED' || (Buffer.isBuffer(reply) && reply.length === 6 && reply.toString() === 'QUEUED')) {
      return new Error(QUEUED);
    }
    if (id === undefined) return reply;
    const [of, answer = null] = Array.isArray(reply) ? (reply as unknown[]) : [];
    if (String(of) !== id) return this.mixedUp();
    if (answer instanceof Error) this.refused(answer);
    return answer;
  }

  /** A reply belongs to another call. Returns the error for the one that got it. */
  mixedUp(): Error {
    this.care.onMixedUp?.();
    return new Error(`Redis answered another call: ${MIXED_UP}`);
  }

  /** Whether a list is the reply of a script, though one of two values was due. */
  isOfScript(values: readonly unknown[]): boolean {
    const [first] = values;
    const { own } = this;
    return values.length === 2 && Buffer.isBuffer(first) && first.toString('latin1', 0, own.length) === own;
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
  /** What sends scripts in the place of a client that the application has ended. */
  readonly spare?: () => Pick<ScriptRunner, 'send'> | undefined;
  /** A reply came for another call. */
  readonly onMixedUp?: () => void;
}

function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

/** What `send` throws fails the command, too. */
function begun<T>(send: () => Promise<T>): Promise<T> {
  try {
    return send();
  } catch (error) {
    return Promise.reject(error);
  }
}
