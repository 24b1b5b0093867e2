import { setTimeout as sleep } from 'node:timers/promises';
import { BackendRefusal, memory } from 'nest-redis-lock';
import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LockStore,
  MintRequest,
  ModuleContext,
  NameRequest,
  Pending,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from 'nest-redis-lock/backend';
import type { LockBackendWorld } from 'nest-redis-lock/testing';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { lying } from '../support/lying-backend.js';
import { openBackend, withMembers } from '../support/open-backend.js';
import type { Heard, Lies, Wrong } from './wrong-backends.js';

/** Processes that share one store in memory, which lies. */
function liar(lies: Lies = () => ({}), heard?: Heard): () => LockBackendWorld {
  return () => {
    const shared = lying(lies, heard);
    return { open: () => shared, without: ['queue'] };
  };
}

/** Processes that share one store in memory, which answers nothing while it is paused. */
function pausing(lies: Lies = () => ({}), whilePaused?: () => void): () => LockBackendWorld {
  return () => {
    let paused: Gate | undefined;
    const answered = async () => {
      if (paused) whilePaused?.();
      await paused?.opened;
    };
    const shared = lying((honest) => ({
      ping: () => answered(),
      acquire: async (request: AcquireRequest) => (await answered(), honest.acquire(request)),
      renew: (requests: readonly RenewRequest[]) =>
        requests.map(async (request) => (await answered(), (await honest.renew([request])[0])!)),
      release: async (request: ReleaseRequest) => (await answered(), honest.release(request)),
      ...lies(honest),
    }));
    const pause = async () => {
      paused = new Gate();
      return async () => {
        paused?.open();
        paused = undefined;
      };
    };
    return { open: () => shared, without: ['queue'], faults: { pause } };
  };
}

/** Processes with one session each, which share a store in memory. It tells of the end of a session. */
function withSessions(lies: Lies = () => ({}), heard?: Heard): () => LockBackendWorld {
  return () => {
    const traits = { ...memory().traits, lease: 'session' as const };
    const shared = lying((honest) => ({ traits, ...lies(honest) }), heard);
    const killSession = async () => {
      const store = openBackend(shared);
      const { names } = await store.list!({ pattern: '*', cursor: '', limit: 100 });
      for (const name of names) await store.forceRelease!({ name });
    };
    return { open: () => shared, without: ['queue', 'ttl'], faults: { killSession } };
  };
}

/** A store in memory that may lose its data. Its next request opens it again, which it may tell its modules. */
function losingData(telling: boolean, of = (store: LockStore) => store): LockBackendWorld {
  let shared = memory();
  const open = (module: ModuleContext): LockStore => {
    let opened = shared;
    let store = of(shared.open(module));
    const reach = () => {
      if (opened !== shared) {
        opened = shared;
        store = of(shared.open(module));
        if (telling) queueMicrotask(module.connected);
      }
      return store;
    };
    return new Proxy(store, {
      get: (_target, name) => {
        const value: unknown = Reflect.get(store, name);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]): unknown => Reflect.apply(value, reach(), args);
      },
    });
  };
  const loseData = async () => {
    // A store in memory begins its tokens with the time (ms); a server takes longer than that to lose its data.
    const now = Date.now();
    await eventually(() => Date.now() > now, { every: 1 });
    shared = memory();
  };
  // What a process knows of tokens, it knows of a backend.
  return { open: () => withMembers(memory(), { open }), without: ['queue'], faults: { loseData } };
}

/** States the whole `ttl` to a ticket that has the name already, and leaves its lease as it is. */
const overstates: Lies = (honest) => {
  const granted = new Set<string>();
  return {
    acquire: async (request: AcquireRequest): Promise<AcquireAnswer> => {
      const tokens = granted.has(request.ticket) ? await honest.mint({ ...request, leastToken: 0 }) : null;
      if (tokens) return { status: 'granted', tokens, remaining: request.ttl, waiting: undefined };
      const answer = await honest.acquire(request);
      if (answer.status === 'granted') granted.add(request.ticket);
      return answer;
    },
  };
};

/** Renews a lease that has ended, unless another ticket has the name. */
const revives: Lies = (honest) => ({
  renew: (requests: readonly RenewRequest[]) =>
    requests.map(async (request): Promise<RenewAnswer> => {
      const { status } = await honest.acquire(request);
      return status === 'granted' ? { status: 'renewed', remaining: request.ttl } : { status: 'not-owner' };
    }),
});

/** Makes the lease as long as the minimum hold. */
const lengthens: Lies = (honest) => ({
  keep: async (request: KeepRequest) => {
    const { ticket, rest: ttl } = request;
    const [renewed] = honest.renew([{ ...request, ticket, ttl }]);
    return (await renewed)?.status === 'renewed' ? { status: 'released', resent: false } : honest.keep!(request);
  },
});

/** Notes no writer that waits. */
const ignoresWriters: Lies = (honest) => ({
  acquire: (request: AcquireRequest) => honest.acquire({ ...request, waits: false }),
});

/** The names for which a writer has waited. */
const waiting = new Set<string>();

/** Lets no reader in once a writer has waited. */
const awaitsCrashedWriters: Lies = (honest) => ({
  acquire: async (request: AcquireRequest): Promise<AcquireAnswer> => {
    if (request.mode === 'read' && waiting.has(request.name))
      return { status: 'busy', owner: 'readers', remaining: 60_000 };
    if (request.mode !== 'read' && request.waits) waiting.add(request.name);
    return honest.acquire(request);
  },
});

/** Gives each grant the same token. */
const repeatsTokens: Lies = (honest) => ({
  acquire: async (request: AcquireRequest) => {
    const answer = await honest.acquire(request);
    return answer.status === 'granted' ? { ...answer, tokens: { first: 17, count: 1 } } : answer;
  },
});

/** Answers a renewal of several names as that of the first. */
const renewsAlike: Lies = (honest) => ({
  renew: (requests: readonly RenewRequest[]) => {
    const answers = honest.renew(requests);
    return requests.map(() => answers[0]!);
  },
});

/** Grants twice the lease that was asked for. */
const doublesLeases: Lies = (honest) => ({
  acquire: (request: AcquireRequest) => honest.acquire({ ...request, ttl: 2 * request.ttl }),
});

/** Takes all tickets of a process for one. */
const knowsProcesses: Lies = (honest) => ({
  acquire: async (request: AcquireRequest) => {
    const state = await honest.inspect(request);
    const ours = state?.owner.split(':')[0] === request.ticket.split(':')[0];
    return honest.acquire(ours && state ? { ...request, ticket: state.owner } : request);
  },
});

/** Makes the same of names that differ in case. */
const foldsCase: Lies = (honest) => ({
  acquire: (request: AcquireRequest) => honest.acquire({ ...request, name: request.name.toLowerCase() }),
  release: (request: ReleaseRequest) => honest.release({ ...request, name: request.name.toLowerCase() }),
  inspect: (request: NameRequest) => honest.inspect({ ...request, name: request.name.toLowerCase() }),
});

/** Gives its answer to a release to the first who asks for it, and to nobody later. */
const forgetsAnswers: Lies = (honest) => ({
  release: (request: ReleaseRequest): Pending<ReleaseAnswer> => {
    const answer = honest.release(request);
    let asked = false;
    return {
      then: (answered, failed) => {
        if (!asked) answer.then(answered, failed);
        else failed(new Error('the answer was given to another one'));
        asked = true;
      },
    };
  },
});

/** Says that it has renewed what it does not know to be held. */
const renewsAnyway: Lies = () => ({
  renew: (requests: readonly RenewRequest[]) =>
    requests.map(async ({ ttl }): Promise<RenewAnswer> => ({ status: 'renewed', remaining: ttl })),
});

/** Takes the tokens first and the name after it, sooner or later. */
const mintsFirst: Lies = (honest) => {
  let last = 0;
  return {
    acquire: async (request: AcquireRequest) => {
      const first = (last += 1);
      await sleep(5 * (first % 4));
      const answer = await honest.acquire(request);
      return answer.status === 'granted' ? { ...answer, tokens: { first, count: 1 } } : answer;
    },
  };
};

/** Renews nothing where one of the names has another owner. */
const renewsTogether: Lies = (honest) => ({
  renew: (requests: readonly RenewRequest[]) => {
    const all = Promise.all(honest.renew(requests).map((answer) => Promise.resolve(answer)));
    const failed = all.then((answers) => answers.find(({ status }) => status === 'not-owner'));
    return requests.map(async (_, index) => (await failed) ?? (await all)[index]!);
  },
});

/** Begins its tokens at 1 whenever it has no data. */
function countsFromOne(store: LockStore): LockStore {
  let last = 0;
  const counted = () => ({ first: (last += 1), count: 1 });
  return withMembers(store, {
    acquire: async (request: AcquireRequest): Promise<AcquireAnswer> => {
      const answer = await store.acquire(request);
      return answer.status === 'granted' ? { ...answer, tokens: counted() } : answer;
    },
    mint: async (request: MintRequest) => ((await store.mint(request)) ? counted() : null),
  });
}

/** Each on a store in memory. */
export const WRONG_IN_MEMORY: readonly Wrong[] = [
  {
    guarantee: 'lease',
    what: 'states more lease than is left to an owner that asks again',
    world: liar(overstates),
    fails: 'states no more lease than is left to an owner that asks again',
    saying: /^another ticket got the name after \d+/,
    honest: liar(),
  },
  {
    guarantee: 'lease',
    what: 'states more lease than is left to a reader that asks again',
    world: liar(overstates),
    fails: 'states no more lease than is left to a reader that asks again',
    saying: /^another ticket got the name after \d+/,
    honest: liar(),
  },
  {
    guarantee: 'lease',
    what: 'renews a lease that has ended',
    world: liar(revives),
    fails: 'does nothing for a ticket whose lease has ended, although nobody took the name',
    saying: /'renewed'/,
    honest: liar(),
  },
  {
    guarantee: 'lease',
    what: 'lengthens a lease by a minimum hold',
    world: liar(lengthens),
    fails: 'never lengthens a lease by a minimum hold',
    saying: /^\d+(\.\d+)? ms are left of a lease of 1500/,
    honest: liar(),
  },
  {
    guarantee: 'waiting',
    what: 'lets readers overtake a writer',
    world: liar(ignoresWriters),
    fails: 'lets readers wait behind a writer that waits, until it falls silent',
    saying: /got in as a reader while a writer waited/,
    honest: liar(),
  },
  {
    guarantee: 'waiting',
    what: 'lets readers wait behind a writer that has crashed',
    world: liar(awaitsCrashedWriters),
    fails: 'lets readers wait behind a writer that waits, until it falls silent',
    saying: /a reader gets in after a writer that asks no more/,
    honest: liar(),
  },
  {
    guarantee: 'connection',
    what: 'answers a ping without its store',
    world: () => ({ ...liar()(), faults: { pause: async () => async () => {} } }),
    fails: 'answers no ping while the store does not answer',
    saying: /it must ask the store/,
    honest: pausing(),
  },
  {
    guarantee: 'tokens',
    what: 'gives each grant the same token',
    world: liar(repeatsTokens),
    fails: 'issues rising tokens to processes that take turns',
    saying: /^token 17 after 17: every grant has higher tokens/,
    honest: liar(),
  },
  {
    guarantee: 'loss',
    what: 'does not tell that it is connected again',
    world: () => losingData(false),
    fails: 'says that it is connected again (loseData)',
    saying: /the backend says that it is connected/,
    honest: () => losingData(true),
  },
  {
    guarantee: 'tokens',
    what: 'begins its tokens anew after a loss of data',
    world: () => losingData(true, countsFromOne),
    fails: 'tells holders of a loss of data, and issues higher tokens after it, to new processes, too',
    saying: /after a loss of data, a new process gets higher tokens, too/,
    honest: () => losingData(true),
  },
  {
    guarantee: 'answers',
    what: 'answers a renewal of several names as that of the first',
    world: liar(renewsAlike),
    fails: 'renews each of several names by itself, in one call',
    saying: /'not-owner'/,
    honest: liar(),
  },
  {
    guarantee: 'lease',
    what: 'grants twice the lease that was asked for',
    world: liar(doublesLeases),
    fails: 'grants a free name, with a token and the lease that is left',
    saying: /^remaining 120000 of 60000/,
    honest: liar(),
  },
  {
    guarantee: 'identity',
    what: 'takes all tickets of a process for one',
    world: liar(knowsProcesses),
    fails: 'refuses another ticket of the same process, too',
    saying: /'granted'/,
    honest: liar(),
  },
  {
    guarantee: 'identity',
    what: 'makes the same of names that differ in case',
    world: liar(foldsCase),
    fails: 'keeps names apart that differ in case, blanks, separators or beyond ASCII',
    saying: /a grant is due, and the answer is .*'busy'/,
    honest: liar(),
  },
  {
    guarantee: 'identity',
    what: 'takes no notice of prefixes',
    world: liar(
      () => ({}),
      (module) => ({ ...module, prefix: undefined }),
    ),
    fails: 'keeps the names of different prefixes apart',
    saying: /a grant is due, and the answer is .*'busy'/,
    honest: liar(),
  },
  {
    guarantee: 'answers',
    what: 'gives an answer to the first who asks for it alone',
    world: liar(forgetsAnswers),
    fails: 'keeps its answer for a caller that asks later, and for several',
    saying: /the answer was given to another one/,
    honest: liar(),
  },
  {
    guarantee: 'session',
    what: 'goes on renewing when its session has ended',
    world: withSessions(renewsAnyway, (module) => ({ ...module, lost: () => {} })),
    fails: 'says that its locks are lost when the store ends their session',
    saying: /both signals are aborted/,
    honest: withSessions(),
  },
  {
    guarantee: 'roles',
    what: 'leaves out a role that its world does not name',
    world: liar(() => ({ list: undefined })),
    fails: 'lists the names that have an owner, page by page',
    saying: /^the backend has no "list": name it in `without` of the world/,
    honest: liar(),
  },
  {
    guarantee: 'tokens',
    what: 'takes the tokens before the name',
    world: liar(mintsFirst),
    fails: 'grants rising tokens to tickets that ask at the same time',
    saying: /^token \d+ after \d+: every grant has higher tokens/,
    honest: liar(),
  },
  {
    guarantee: 'batch',
    what: 'renews none of several names where it cannot renew one',
    world: liar(renewsTogether),
    fails: 'renews each of several names by itself, in one call',
    saying: /'not-owner'/,
    honest: liar(),
  },
  {
    guarantee: 'loss',
    what: 'answers a renewal without its store',
    world: pausing(renewsAnyway),
    fails: 'says that a lock is lost at its deadline, while the store does not answer',
    saying: /the signal is aborted/,
    honest: pausing(),
  },
  {
    guarantee: 'refusal',
    what: 'refuses for good what its store does not answer now',
    world: pausing(undefined, () => {
      throw new BackendRefusal('the store is paused');
    }),
    fails: 'answers each call in time while the store does not, and serves again after it',
    saying: /the lock is granted again/,
    honest: pausing(),
  },
];
