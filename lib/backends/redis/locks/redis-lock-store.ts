import calculateSlot from 'cluster-key-slot';
import type {
  AcquireAnswer,
  AcquireSeveralRequest,
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  LockStore,
  ModuleContext,
  Pending,
  QueueAnswer,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  RequeueRequest,
  TicketRequest,
} from '../../../contracts/lock-backend.js';
import { LockKeyError } from '../../../errors/lock-errors.js';
import { LONGEST_DELAY } from '../../../timing/clock.js';
import { BatchedCall } from '../../batch.js';
import type { RedisLink } from '../connection/redis-link.js';
import {
  integerOf,
  leaseOf,
  type RedisInteger,
  type RedisScript,
  tokenRange,
  unexpected,
} from '../connection/redis-script.js';
import { ScriptBatch, type ScriptArgument } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { checkServers } from '../connection/server-check.js';
import type { VersionsInUse } from '../connection/versions-in-use.js';
import type { FencingScripts } from './fencing-scripts.js';
import { listLocks, LockInspection } from './lock-inspection.js';
import { type LockChannels, prepareRenewals } from './redis-lock-channels.js';
import { LockKeys } from './redis-lock-keys.js';
import { KEEP, RENEW, RENEW_ONE } from './release.lua.js';
import { type Replicas, ReplicatedQueue } from './replicas.js';

/** What the locks of all modules at one Redis share. */
interface LockParts {
  readonly link: RedisLink;
  readonly fencing: FencingScripts;
  readonly channels: LockChannels;
  readonly versions: VersionsInUse;
  /** `undefined` where no replica has to confirm. */
  readonly replicas: Replicas | undefined;
}

/** The locks of one module: which script each request is. `forget` is called when it has stopped. */
export function redisLockStore(
  { link, fencing, channels, versions, replicas }: LockParts,
  module: ModuleContext,
  forget: () => void,
): LockStore {
  const { scripts, client } = link;
  const keys = new LockKeys(module.prefix);
  const publishing = keys.publishing(client);
  const releases = new ScriptBatch(scripts, fencing.release);
  const inspection = new LockInspection(scripts, keys);
  const queueOf = (heard: ModuleContext) => new RedisLockQueue(link, fencing, keys, channels, heard);

  /** Runs a script on the keys of one name. */
  const run = (script: RedisScript, name: string, ...args: readonly ScriptArgument[]) =>
    scripts.run(script, keys.of(name), [publishing, ...args]);

  /** Takes all of the names, whose keys these are, or none. */
  const take = async (
    { ticket, ttl, leastToken = 0, mode }: Omit<AcquireSeveralRequest, 'names'>,
    names: readonly string[],
    theirs: readonly string[],
  ): Promise<AcquireAnswer> => {
    const script = mode === 'read' ? fencing.readAll : fencing.acquireAll;
    const answer = await scripts.run(script, theirs, [publishing, ticket, ttl, leastToken]);
    const [granted, tokenOrIndex, owner, pttl] = answer as [RedisInteger, RedisInteger, string, RedisInteger];
    if (Number(granted) === 1) {
      const tokens = tokenRange([tokenOrIndex, 1]);
      await replicas?.confirm(keys, names);
      return { status: 'granted', tokens, remaining: ttl, waiting: undefined };
    }
    const name = names[Number(tokenOrIndex) - 1] as string;
    return { status: 'busy', name, owner, remaining: leaseOf(pttl) };
  };

  /**
   * Renews one name in a script of its own: during a migration, the keys of several locks may lie at two nodes. The
   * answer lacks the number of waiters.
   */
  const renewOne = async ({ name, ticket, ttl }: RenewRequest): Promise<RenewAnswer> => {
    const remaining = integerOf(await scripts.run(RENEW_ONE, [keys.lock(name)], [ticket, ttl]));
    return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining };
  };

  const renewAlone = (request: RenewRequest, call: BatchedCall<RenewAnswer>): void => {
    renewOne(request).then(
      (answer) => call.settle(answer),
      (error: unknown) => call.fail(error),
    );
  };

  const release = ({ name, ticket }: TicketRequest): Pending<ReleaseAnswer> => {
    const { disconnects } = scripts;
    return releases.run(publishing, keys.of(name), [ticket], (reply) => {
      return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
    });
  };

  return {
    queue: replicas ? new ReplicatedQueue(module, keys, replicas, queueOf, release) : queueOf(module),

    acquire: (request) => take(request, [request.name], keys.of(request.name)),

    async acquireSeveral(request) {
      const { names } = request;
      if (client.isCluster) requireOneSlot(client.options.keyPrefix, keys, names);
      const theirs = names.flatMap((name) => keys.of(name));
      return take(request, names, theirs);
    },

    renew(requests) {
      if (scripts.takesOneSlot) return requests.map(renewOne);
      const all: string[] = [];
      const args: (string | number)[] = [];
      const calls: BatchedCall<RenewAnswer>[] = [];
      for (const { name, ticket, ttl } of requests) {
        const [lock, , queue] = keys.of(name);
        all.push(lock, queue);
        args.push(ticket, ttl);
        calls.push(new BatchedCall());
      }
      scripts.send(
        RENEW,
        all,
        args,
        (reply) => {
          const fits = Array.isArray(reply) && reply.length === 2 * calls.length;
          const numbers = fits ? (reply as RedisInteger[]).map(Number) : [];
          for (const [index, call] of calls.entries()) {
            const [remaining = NaN, waiting = NaN] = numbers.slice(2 * index, 2 * index + 2);
            if (!Number.isInteger(remaining) || !Number.isInteger(waiting)) {
              call.fail(new Error('Redis answered no lease to a renewal'));
            } else call.settle(remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining, waiting });
          }
        },
        (error) => {
          const refused = scripts.refusesKeys(error);
          for (const [index, call] of calls.entries()) {
            if (refused) renewAlone(requests[index] as RenewRequest, call);
            else call.fail(error);
          }
        },
      );
      return calls;
    },

    release,

    async mint({ name, ticket, leastToken }) {
      const reply = (await run(fencing.mint, name, ticket, leastToken)) as RedisInteger[];
      return reply.length === 0 ? null : tokenRange(reply);
    },

    async keep({ name, ticket, rest }) {
      const { disconnects } = scripts;
      const reply = await run(KEEP, name, ticket, rest);
      return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
    },

    downgrade: async ({ name, ticket, ttl }) => void (await run(fencing.downgrade, name, ticket, ttl)),
    inspect: ({ name }) => inspection.inspect(name),

    async label(label, ttl) {
      const key = keys.label(module.process);
      if (ttl === 0) await scripts.command(() => client.del(key));
      else await scripts.command(() => client.set(key, label, 'PX', ttl));
    },

    forceRelease: ({ name }) => run(fencing.forceRelease, name) as Promise<string | string[] | null>,
    list: (request) => listLocks(scripts, keys, request),

    async start() {
      link.start(module);
      replicas?.allow(module.commandTimeout);
      const rights = keys.rights(client.options.keyPrefix, replicas !== undefined);
      await checkServers(scripts, rights, module.report, () => versions.note(keys.versions, 'locks'));
      prepareRenewals(scripts);
    },

    stop() {
      channels.unlisten(keys, module);
      forget();
    },
  };
}

/** The queue of the Redis backend: one list of tickets for each lock, and one channel for each process. */
class RedisLockQueue implements LockQueue {
  readonly pauses = true;
  private readonly scripts: ScriptRunner;
  private readonly publishing: string;
  private readonly enqueues: ScriptBatch;
  private readonly reads: ScriptBatch;
  private readonly beats: ScriptBatch;

  constructor(
    { scripts, client }: RedisLink,
    private readonly fencing: FencingScripts,
    private readonly keys: LockKeys,
    private readonly channels: LockChannels,
    private readonly module: ModuleContext,
  ) {
    this.scripts = scripts;
    this.publishing = keys.publishing(client);
    this.enqueues = new ScriptBatch(scripts, fencing.acquireOrEnqueue);
    this.reads = new ScriptBatch(scripts, fencing.readOrEnqueue);
    this.beats = new ScriptBatch(scripts, fencing.beat);
  }

  listen(): Promise<void> {
    return this.channels.listen(this.keys, this.module);
  }

  enqueue(request: EnqueueRequest): Pending<QueueAnswer> {
    const { ticket, ttl, claim, name, mode } = request;
    const args = [ticket, ttl, claim === undefined ? '' : `${claim}:${name}`];
    const batch = mode === 'read' ? this.reads : this.enqueues;
    return batch.run(this.publishing, this.keys.of(name), args, (reply) => {
      if (Array.isArray(reply)) return queueAnswer(reply as QueueReply);
      // The name was free and nobody waited for it.
      const first = Number(reply);
      if (!(Number.isSafeInteger(first) && first > 0)) throw unexpected(reply, 'a fencing token');
      return { status: 'granted', tokens: { first, count: 1 }, remaining: ttl, waiting: 0 };
    });
  }

  beat({ name, ticket, pause = 0 }: BeatRequest): Pending<QueueAnswer | { status: 'gone' }> {
    return this.beats.run(this.publishing, this.keys.of(name), [ticket, pause], (reply) =>
      Number((reply as QueueReply)[0]) === -1 ? { status: 'gone' } : queueAnswer(reply as QueueReply),
    );
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const disconnects = this.scripts.disconnects;
    const { ticket, again, claim, name } = request;
    const args = [this.publishing, ticket, again, `${claim}:${name}`];
    const reply = (await this.scripts.run(this.fencing.requeue, this.keys.of(name), args)) as QueueReply;
    if (Number(reply[0]) !== -1) return queueAnswer(reply);
    return { status: 'not-owner', resent: this.scripts.disconnects !== disconnects };
  }
}

export type QueueReply = [status: RedisInteger, ...rest: RedisInteger[]];

export function queueAnswer(reply: QueueReply): QueueAnswer {
  if (Number(reply[0]) === 1) {
    const [, first, count, pttl, waiting] = reply;
    return {
      status: 'granted',
      tokens: tokenRange([first, count]),
      // A key without an expiry (somebody called PERSIST) is ours until its next renewal.
      remaining: Math.min(leaseOf(pttl), LONGEST_DELAY),
      waiting: Number(waiting),
    };
  }
  const [, unissued, place, pttl, owner, unreached] = reply;
  return {
    status: 'busy',
    unissued: Number(unissued),
    first: Number(place) === 1,
    far: Number(place) === 0,
    unreached: Number(unreached) > 0,
    remaining: leaseOf(pttl),
    owner: String(owner),
  };
}

/** What RELEASE or KEEP has answered. */
export function releaseStatus(reply: unknown): ReleaseAnswer['status'] {
  const answer = Number(reply);
  return answer === 1 ? 'released' : answer === 0 ? 'gone' : 'taken';
}

/** @throws LockKeyError for names that a Cluster cannot take in one step */
function requireOneSlot(keyPrefix = '', keys: LockKeys, names: readonly string[]): void {
  if (new Set(names.map((name) => calculateSlot(keyPrefix + keys.lock(name)))).size === 1) return;
  const [first = '', second = ''] = names;
  throw new LockKeyError(
    `Locks ${names.map((name) => `"${name}"`).join(', ')} lie in different slots of the Redis Cluster and cannot be ` +
      `taken in one step; begin their names with one tag in braces, for example "{shop}${first}" and "{shop}${second}"`,
    names,
  );
}
