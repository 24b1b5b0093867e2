import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import type { LockBackend } from 'nest-redis-lock';
import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  BeatRequest,
  Busy,
  EnqueueRequest,
  LockQueue,
  LockStore,
  LockTraits,
  Minted,
  MintRequest,
  ModuleContext,
  QueueAnswer,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  RequeueRequest,
  TicketRequest,
} from 'nest-redis-lock/backend';
import { eventually } from './eventually.js';

interface Commands {
  acquire: { request: AcquireRequest | AcquireSeveralRequest; answer: AcquireAnswer };
  renew: { request: RenewRequest; answer: RenewAnswer };
  release: { request: TicketRequest; answer: ReleaseAnswer };
  listen: { request: ModuleContext; answer: void };
  enqueue: { request: EnqueueRequest; answer: QueueAnswer };
  beat: { request: BeatRequest; answer: QueueAnswer | { status: 'gone' } };
  requeue: { request: RequeueRequest; answer: QueueAnswer | { status: 'not-owner'; resent: boolean } };
  mint: { request: MintRequest; answer: Minted | null };
  downgrade: { request: RenewRequest; answer: void };
}

type Kind = keyof Commands;

/** What was sent, and waits for the test to answer it. */
export class Command<K extends Kind> {
  /** Not before the process read its clock. */
  readonly sentAt = performance.now();
  readonly answered: Promise<Commands[K]['answer']>;
  taken = false;
  private resolve!: (answer: Commands[K]['answer']) => void;
  private reject!: (error: Error) => void;

  constructor(
    readonly kind: K,
    readonly request: Commands[K]['request'],
  ) {
    this.answered = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  get ticket(): string {
    return (this.request as { ticket: string }).ticket;
  }

  /** Resolves when the answer had its effects. */
  async answer(answer: Commands[K]['answer']): Promise<void> {
    this.resolve(answer);
    await turnOfTheLoop();
  }

  async fail(error = new Error('connection lost')): Promise<void> {
    this.reject(error);
    await turnOfTheLoop();
  }
}

/** A backend with a queue whose every answer and message comes from the test, when the test says so. */
export class ScriptedBackend implements LockBackend, LockStore {
  readonly name = 'scripted';
  readonly traits: LockTraits = {
    lease: 'ttl',
    fencing: 'strict',
    leastLease: 1,
    writesAtOnce: true,
  };
  readonly sent: Command<Kind>[] = [];
  /** What is answered at once, because the test is not about it. */
  atOnce: { [K in Kind]?: () => Commands[K]['answer'] | Error } = {
    release: () => ({ status: 'released', resent: false }),
    listen: () => {},
    downgrade: () => {},
  };
  private module: ModuleContext | undefined;
  private readonly eventually: typeof eventually;

  /** `eventually` of a driven clock, where the test drives one. */
  constructor(clock: { eventually: typeof eventually } = { eventually }) {
    this.eventually = clock.eventually;
    next = 1_000;
  }

  readonly queue: LockQueue = {
    listen: () => this.send('listen', this.module as ModuleContext),
    enqueue: (request) => this.send('enqueue', request),
    beat: (request) => this.send('beat', request),
    requeue: (request) => this.send('requeue', request),
  };

  open(module: ModuleContext): LockStore {
    this.module = module;
    return this;
  }

  acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    return this.send('acquire', request);
  }

  acquireSeveral(request: AcquireSeveralRequest): Promise<AcquireAnswer> {
    return this.send('acquire', request);
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map((request) => this.send('renew', request));
  }

  release(request: TicketRequest): Promise<ReleaseAnswer> {
    return this.send('release', request);
  }

  mint(request: MintRequest): Promise<Minted | null> {
    return this.send('mint', request);
  }

  downgrade(request: RenewRequest): Promise<void> {
    return this.send('downgrade', request);
  }

  async inspect(): Promise<null> {
    return null;
  }

  async forceRelease(): Promise<null> {
    return null;
  }

  async ping(): Promise<void> {}

  async close(): Promise<void> {}

  /** The oldest command of this kind that was not taken yet, once it is there. */
  async take<K extends Kind>(kind: K, within = 30_000): Promise<Command<K>> {
    const command = await this.eventually(() => this.all(kind).find(({ taken }) => !taken), { within, every: 1 });
    command.taken = true;
    return command;
  }

  all<K extends Kind>(kind: K): Command<K>[] {
    return this.sent.filter((command) => command.kind === kind) as unknown as Command<K>[];
  }

  /** The tickets that were to be released. */
  get releases(): string[] {
    return this.all('release').map(({ ticket }) => ticket);
  }

  /** Resolves when the message had its effects. */
  async tell(message: QueueMessage): Promise<void> {
    this.module?.message(message);
    await turnOfTheLoop();
  }

  async interrupt(): Promise<void> {
    this.module?.interrupted();
    await turnOfTheLoop();
  }

  async reconnect(): Promise<void> {
    this.module?.reconnected();
    await turnOfTheLoop();
  }

  /** From here on nothing is kept waiting: the application is to end. */
  giveUp(): void {
    const gone = new Error('the test is over');
    this.atOnce = {
      acquire: () => gone,
      renew: () => ({ status: 'not-owner' }),
      release: () => ({ status: 'released', resent: false }),
      listen: () => {},
      enqueue: () => gone,
      beat: () => gone,
      requeue: () => gone,
      mint: () => gone,
      downgrade: () => {},
    };
    for (const command of this.sent) this.answerAtOnce(command);
  }

  private send<K extends Kind>(kind: K, request: Commands[K]['request']): Promise<Commands[K]['answer']> {
    const command = new Command(kind, request);
    this.sent.push(command as unknown as Command<Kind>);
    this.answerAtOnce(command as unknown as Command<Kind>);
    return command.answered;
  }

  private answerAtOnce(command: Command<Kind>): void {
    const answer = this.atOnce[command.kind];
    if (!answer) return;
    const value = answer();
    void (value instanceof Error ? command.fail(value) : command.answer(value));
  }
}

/** Where the tokens of the next grant begin: as of any store, they rise. A new backend begins anew. */
let next = 1_000;

function rising(): number {
  const first = next;
  next += 3_000;
  return first;
}

export function granted({
  first = rising(),
  count = 1_000,
  remaining = 30_000,
  waiting = 0,
}: { first?: number; count?: number; remaining?: number; waiting?: number } = {}): QueueAnswer {
  return { status: 'granted', tokens: { first, count }, remaining, waiting };
}

export function busy({
  unissued = 0,
  first = false,
  far = false,
  unreached = false,
  owner = 'other:1',
  remaining = 30_000,
}: Partial<Omit<Busy, 'status'>> = {}): QueueAnswer {
  return { status: 'busy', unissued, first, far, unreached, owner, remaining };
}

export function grantMessage(
  ticket: string,
  name: string,
  {
    first = rising(),
    count = 1_000,
    claim = 5_000,
    waiting = 0,
  }: { first?: number; count?: number; claim?: number; waiting?: number } = {},
): QueueMessage {
  return { kind: 'grant', ticket, name, tokens: { first, count }, claim, waiting };
}
