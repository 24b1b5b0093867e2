import type {
  AcquireAnswer,
  AcquireRequest,
  LockBackend,
  LockStore,
  ModuleContext,
  Notice,
  RenewAnswer,
} from '../../contracts/lock-backend.js';
import { MOST_WAITERS, processOf } from '../../contracts/lock-requests.js';
import { ownStore } from '../../contracts/store.js';
import { LockKeyError } from '../../errors/lock-errors.js';
import { remedyClause, type Remedies } from '../failures.js';
import { Listeners } from '../listeners.js';
import { EtcdClient } from './etcd-client.js';
import { leaseIsGone, type EtcdEndpoint } from './etcd-endpoint.js';
import { EtcdLockQueue } from './etcd-lock-queue.js';
import { EtcdKeys, EtcdNames, type EtcdLock } from './etcd-names.js';
import { etcdSettings, type EtcdOptions, type EtcdSettings } from './etcd-options.js';
import { EtcdSessions } from './etcd-session.js';
import { EtcdSweep } from './etcd-sweep.js';
import {
  count,
  decode,
  get,
  hasValue,
  numberIn,
  put,
  remove,
  EtcdTransactions,
  isSince,
  putForGood,
} from './etcd-transactions.js';
import { TokenOffset } from './token-offset.js';

/**
 * Locks on etcd 3.4 or newer, over the JSON gateway of its members, by `undici`. The locks of a process live with one
 * lease of etcd, which the backend keeps alive; when the process dies, etcd frees them after `ttl`.
 *
 * @throws LockConfigError for options that it cannot take
 */
export function etcd(options: EtcdOptions): LockBackend {
  return etcdOn(etcdSettings(options));
}

/** How many names one transaction can take: each needs three of its 128 operations. */
const MOST_NAMES = 40;
/** How many names are looked at in one transaction. */
const NAMES_AT_ONCE = 60;

/** Who asks, and for what tokens. */
type AskedFor = Pick<AcquireRequest, 'ticket' | 'leastToken'>;

/** Who owns a name, by which lease, and how many wait for it. */
interface Look {
  readonly ticket: string;
  readonly lease: string | undefined;
  readonly waiting: number;
}

function etcdOn(settings: EtcdSettings): LockBackend {
  const { root, ttl, firstToken } = settings;
  const client = new EtcdClient(settings);
  const rootKeys = new EtcdKeys(root);
  const transactions = new EtcdTransactions(client);
  const offset = new TokenOffset(rootKeys.offset, transactions);
  const listeners = new Listeners();
  const keyOf = (lease: string) => rootKeys.session(lease);
  const sessions = new EtcdSessions(client, transactions, keyOf, ttl, listeners, () => offset.startAfter(firstToken));
  const names = new EtcdNames(rootKeys, transactions, offset, sessions);
  const sweep = new EtcdSweep(client, names, ttl * 1_000);
  client.whenInDoubt(() => sweep.start());
  const queues = new Set<EtcdLockQueue>();

  const take = async (locks: readonly EtcdLock[], asked: AskedFor, begin: () => void): Promise<AcquireAnswer> => {
    const { ticket, leastToken = 0 } = asked;
    /** The names that an earlier send has taken. */
    let own = new Set<EtcdLock>();
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await offset.tryAgain(tries);
      const session = await sessions.current();
      await offset.raiseTo(leastToken);
      begin();
      const outcome = await transactions
        .run({
          compare: locks.flatMap((lock) => (own.has(lock) ? [hasValue(lock.owner, ticket)] : names.isFree(lock))),
          success: locks.map((lock) => names.give(lock, ticket, session.lease)),
          failure: locks.flatMap((lock) => names.reads(lock)),
        })
        .catch((error: unknown) => {
          if (!leaseIsGone(error)) throw error;
          session.end(error);
        });
      if (!outcome) continue;
      if (outcome.succeeded) return names.granted(outcome.revision, 0, session.lease);
      const states = locks.map((lock, index) => ({ lock, ...names.stateIn(outcome, 3 * index) }));
      const busy = states.find(({ owner, first }) => (owner ? owner.ticket !== ticket : first !== undefined));
      own = new Set(states.filter(({ owner }) => owner?.ticket === ticket).map(({ lock }) => lock));
      if (!busy) continue;
      sessions.tickets.delete(ticket);
      const { owner, first, lock } = busy;
      if (!owner && first) await names.handOver(lock, { ...busy, first });
      return { status: 'busy', name: lock.name, owner: owner?.ticket ?? '', remaining: Infinity };
    }
  };

  const look = async (locks: readonly EtcdLock[]): Promise<readonly Look[]> => {
    const outcome = await transactions.read(locks.flatMap(({ owner, waiters }) => [get(owner), count(waiters)]));
    return locks.map((_, index) => {
      const kv = outcome.first(2 * index);
      return { ticket: decode(kv?.value), lease: kv?.lease, waiting: outcome.count(2 * index + 1) };
    });
  };

  /** Milliseconds left of a lease; 0 when it has ended. */
  const ttlOf = async (lease: string): Promise<number> => {
    if (lease === '0') return Infinity;
    const { answer } = await client.call<{ TTL?: string }>('/v3/lease/timetolive', { ID: lease });
    return answer.TTL === '-1' ? 0 : numberIn('TTL', answer.TTL ?? '0') * 1_000;
  };

  const storeOf = (module: ModuleContext, forget: () => void): LockStore => {
    const keys = new EtcdKeys(root, module.prefix);
    const queue = new EtcdLockQueue(client, names, keys, module, () => sweep.start());
    queues.add(queue);
    const acquireSeveral: LockStore['acquireSeveral'] = async ({ names: all, ...asked }) => {
      if (all.length > MOST_NAMES) {
        throw new LockKeyError(
          `etcd takes at most ${MOST_NAMES} names in one step; give fewer than ${all.length}`,
          all,
        );
      }
      const locks = all.map((name) => keys.lock(name));
      return sessions.ask(asked.ticket, (begin) => take(locks, asked, begin));
    };
    return {
      queue,
      acquire: ({ name, ...asked }) => acquireSeveral({ ...asked, names: [name] }),
      acquireSeveral,

      renew(requests) {
        const session = sessions.present;
        if (!session) return requests.map(() => Promise.resolve({ status: 'not-owner' }));
        const renewed = session.refresh();
        const chunks: Promise<readonly Look[]>[] = [];
        const locks = requests.map(({ name }) => keys.lock(name));
        for (let from = 0; from < locks.length; from += NAMES_AT_ONCE) {
          chunks.push(look(locks.slice(from, from + NAMES_AT_ONCE)));
        }
        return requests.map(async ({ ticket }, index): Promise<RenewAnswer> => {
          const [found] = await Promise.all([Promise.all(chunks), renewed]);
          const own = found.flat()[index] as Look;
          const remaining = session.remaining();
          const owned = own.ticket === ticket && own.lease === session.lease;
          if (!owned || remaining === 0) return { status: 'not-owner' };
          return { status: 'renewed', remaining, waiting: own.waiting };
        });
      },

      release: ({ name, ticket }) => names.release(keys.lock(name), ticket),

      async mint({ name, ticket, leastToken }) {
        for (let tries = 0; ; tries += 1) {
          if (tries > 0) await offset.tryAgain(tries);
          await offset.raiseTo(leastToken);
          const outcome = await names.mint(keys.lock(name), ticket);
          if (outcome.succeeded) return offset.tokensOf(outcome.revision);
          if (names.stateIn(outcome).owner?.ticket !== ticket) return null;
        }
      },

      async inspect({ name }) {
        const outcome = await transactions.read(names.reads(keys.lock(name), MOST_WAITERS));
        const { owner, waiting } = names.stateIn(outcome);
        if (!owner) return null;
        const queued = names.queueIn(outcome);
        const labelKeys = [owner.ticket, ...queued].map((ticket) => keys.label(processOf(ticket)));
        const [left, labels] = await Promise.all([ttlOf(owner.lease), transactions.read(labelKeys.map(get))]);
        if (left === 0) return null;
        const { first, count: tokens } = offset.tokensOf(owner.revision);
        const labelAt = (index: number) => {
          const label = labels.first(index)?.value;
          return label === undefined ? {} : { label: decode(label) };
        };
        const waiters = queued.map((ticket, index) => ({ ticket, ...labelAt(index + 1) }));
        return { owner: owner.ticket, ...labelAt(0), ttl: left, fencingToken: first + tokens - 1, waiting, waiters };
      },

      /** The label lives as long as the session of the process. */
      async label(label, lasts) {
        const key = keys.label(module.process);
        const write = lasts === 0 ? remove(key) : put(key, label, (await sessions.current()).lease);
        await transactions.run({ compare: [], success: [write], failure: [] });
      },

      forceRelease: ({ name }) => names.force(keys.lock(name)),
      start: () => checkCluster(client, keys, transactions, module.report),
      stop() {
        queue.close();
        queues.delete(queue);
        forget();
      },
    };
  };

  return {
    name: 'etcd',
    traits: { lease: 'session', fencing: 'strict', leastLease: 1 },
    open: (module) => ownStore(storeOf(module, listeners.add(module))),
    diagnose: (error) => failureOf(client, error),
    ping: async () => void (await transactions.read([get(rootKeys.offset)])),
    async close() {
      sweep.close();
      for (const queue of queues) queue.close();
      // etcd ends the lease by itself.
      await sessions.close().catch(() => {});
      client.close();
    },
  };
}

const LEAST_VERSION = [3, 4] as const;
/** A revision that no key has. */
const NEVER = '-1';

interface Status {
  readonly version: unknown;
  readonly leader?: string;
  /** Such as `etcdserver: no leader`, or an alarm. */
  readonly errors?: readonly string[];
}

/**
 * Looks at every member. Reports those that do not answer.
 *
 * @throws Error when none answers, or one that does cannot serve, in one line
 */
async function checkCluster(
  client: EtcdClient,
  keys: EtcdKeys,
  transactions: EtcdTransactions,
  report: (notice: Notice) => void,
): Promise<void> {
  const answers = await Promise.all(
    client.endpoints.map(async (endpoint) => ({ endpoint, ...(await statusOf(client, endpoint)) })),
  );
  const silent = answers.filter(({ status }) => status === undefined);
  const causes = silent.map(({ endpoint, why }) => `${endpoint.url}: ${why?.message}`).join('; ');
  if (silent.length === answers.length) throw problem(causes);
  if (silent.length > 0) {
    const message = `etcd: ${causes}; the other ${answers.length - silent.length} of ${answers.length} endpoints serve`;
    report({ level: 'warn', message: `${message}${remedyClause(causes, REMEDIES)}` });
  }
  for (const { endpoint, status } of answers) if (status) requireService(endpoint, status);
  await requireRights(keys, transactions);
}

async function statusOf(
  client: EtcdClient,
  endpoint: EtcdEndpoint,
): Promise<{ readonly status?: Status; readonly why?: Error }> {
  try {
    return { status: await client.ask<Status>(endpoint, '/v3/maintenance/status') };
  } catch (error) {
    return { why: error as Error };
  }
}

function requireService({ url }: EtcdEndpoint, { version, errors = [] }: Status): void {
  const [major = 0, minor = 0] = String(version).split('.').map(Number);
  const [leastMajor, leastMinor] = LEAST_VERSION;
  if (!(major > leastMajor || (major === leastMajor && minor >= leastMinor))) {
    throw new EtcdProblem(
      `etcd at ${url} is version ${String(version)}; ${leastMajor}.${leastMinor} or newer is needed`,
    );
  }
  if (errors.length > 0) throw problem(`${url}: ${errors.join(', ')}`);
}

/** etcd checks the rights for both branches of a transaction: this one never writes. */
async function requireRights({ offset }: EtcdKeys, transactions: EtcdTransactions): Promise<void> {
  try {
    await transactions.run({ compare: [isSince(offset, NEVER)], success: [putForGood(offset, '0')], failure: [] });
  } catch (error) {
    throw problem((error as Error).message);
  }
}

/** An error that names the server, the cause and the remedy already. */
class EtcdProblem extends Error {
  override readonly name = 'EtcdProblem';
}

/** Why a call failed, in one line: the server, the cause, the remedy. */
function failureOf(client: EtcdClient, error?: unknown): Error {
  if (error instanceof EtcdProblem) return error;
  const message = error instanceof Error ? error.message : undefined;
  const cause = client.failures() ?? message ?? 'no answer in time';
  const where = client.failures() === undefined ? ` at ${client.endpoints.map(({ url }) => url).join(', ')}` : '';
  const remedy = remedyClause(message ?? cause, REMEDIES) || remedyClause(cause, REMEDIES);
  return new Error(`etcd${where}: ${cause}${remedy}`, { cause: error });
}

function problem(causes: string): Error {
  return new EtcdProblem(`etcd: ${causes}${remedyClause(causes, REMEDIES)}`);
}

const REMEDIES: Remedies = [
  [
    /database space exceeded|NOSPACE/,
    'its disk quota is used up: compact and defragment it, then etcdctl alarm disarm',
  ],
  [/CORRUPT/, 'the data of its members differ: see its log'],
  [/no leader|leader changed|request timed out/, 'most of its members do not answer each other: see their logs'],
  [/authentication failed/, 'correct username and password'],
  [/authentication is not enabled/, 'give no username and password'],
  [/user name is empty|user name not found/, 'it asks for a user: give username and password'],
  [/permission denied/, 'grant the user the right to read and to write the keys below "root"'],
  [/invalid auth token|auth store is old/, 'it has forgotten who we are: see whether its members have one clock'],
  [/too many operations/, 'raise its --max-txn-ops to 128, the default'],
  [/ECONNREFUSED/, 'nothing listens there: start etcd, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/no answer within|Connect Timeout/, 'check host, port and firewall'],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/, 'nothing answers there: check host, port and firewall'],
  [/ALTNAME_INVALID/, 'its certificate is for another host: give a host that it names, or one that names this host'],
  [/CERT|SELF_SIGNED|UNABLE_TO_/, 'its certificate is not trusted: give its authority as tls: { ca }'],
  [/bad certificate|certificate required/i, 'it asks for a certificate: give tls: { cert, key }'],
  [/wrong version number|EPROTO|ERR_SSL/, 'it does not speak TLS there: give an http:// URL'],
  [
    /HTTP request to an HTTPS server|other side closed|HPE_|ECONNRESET|EPIPE/,
    'check host and port, and whether it asks for https://',
  ],
  [/HTTP 200/, 'something other than etcd answers there: correct host, port and path'],
  [/HTTP 404|Not Found/, 'it has no JSON gateway under /v3: etcd 3.4 or newer is needed, with --enable-grpc-gateway'],
];
