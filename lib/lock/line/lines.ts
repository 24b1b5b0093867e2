import type { ModuleContext } from '../../contracts/lock-backend.js';
import type { LockQueue, QueueMessage } from '../../contracts/lock-queue.js';
import { BriefMap } from '../../timing/brief-collections.js';
import type { Lease } from '../grant/lease.js';
import type { BackendCalls } from '../grant/store.js';
import type { Watchdog } from '../grant/watchdog.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { Heartbeats } from './attempt.js';
import type { Caller, Served } from './caller.js';
import type { Contender } from './line.js';
import type { QueueingBackend } from './named-backend.js';
import { acquireLease } from './polling.js';
import { ReadingContender } from './shared-turn.js';
import { WritingContender } from './turn.js';

/**
 * The contenders of one process at a backend: one for each name that a caller wants, and one for each caller with
 * `order: 'fifo'`, which waits at the backend with a ticket of its own.
 */
export class Contenders {
  readonly channel: QueueChannel;
  private readonly byName = new BriefMap<string, Contender>();
  /** Those that read. */
  private readonly readers = new BriefMap<string, ReadingContender>();
  /** Those of `order: 'fifo'`. */
  private readonly byTicket = new BriefMap<string, Contender>();
  readonly heartbeats: Heartbeats;
  private tickets = 0;
  /** How all tickets begin: they share this text in memory. */
  readonly beforeTickets: string;
  /** How long (ms) a request takes: the least of the last ones. */
  roundTrip = 0;
  /** Whether released names may stay with the process for their `linger`: a message tells when others want them. */
  lingering: boolean;

  constructor(
    readonly backend: QueueingBackend,
    readonly queue: LockQueue,
  ) {
    this.beforeTickets = `${backend.instance}:`;
    this.lingering = queue.pace === undefined;
    this.channel = new QueueChannel(backend.calls, queue);
    this.heartbeats = new Heartbeats(backend.calls.ticks, queue, this.channel);
  }

  /** No message arrives: nobody could tell that others want what lingers. */
  interrupted(): void {
    this.channel.deaf = true;
    for (const contender of this.byName.values()) contender.handBack();
  }

  /** Messages may have been lost. */
  reconnected(): void {
    this.channel.deaf = false;
    this.channel.openedAt = performance.now();
    for (const contender of this.byName.values()) contender.onReconnect();
    for (const contender of this.readers.values()) contender.onReconnect();
    for (const contender of this.byTicket.values()) contender.onReconnect();
  }

  /** How many contenders there are. */
  get size(): number {
    return this.byName.size + this.readers.size + this.byTicket.size;
  }

  /** The caller waits for the name, and then tells `served`. */
  join(name: string, options: ResolvedLockOptions, caller: Caller, served: Served): void {
    const single = options.order === 'fifo';
    const reads = options.mode === 'read';
    let contender = single ? undefined : (reads ? this.readers : this.byName).get(name);
    if (contender?.lingers && !contender.resume()) contender = undefined;
    if (single || reads) this.handBack([name]);
    // Others of this process ask for it, or have it.
    if (caller.first && contender && !contender.idle) caller.asksForName();
    // Who asks once does not wait behind others: it is refused if one of them holds the name, else asks by itself.
    if (contender && options.wait === 0 && !contender.idle && !contender.available) {
      if (contender.holds) {
        caller.meetContention();
        served.refused(contender.refusal(caller.waited()));
      } else {
        acquireLease(this, [name], options, caller).then(
          (lease) => served.admitted(lease),
          (error) => served.refused(error),
        );
      }
      return;
    }
    if (!contender) {
      if (reads) contender = this.readersOf(name);
      else {
        const alone = caller.names.length === 1 ? (caller.names as readonly [string]) : ([name] as const);
        contender = new WritingContender(this, alone, single, 'write');
        if (!single) this.byName.add(name, contender);
      }
    }
    caller.enter(options, served);
    contender.join(caller);
    if (options.wait > 0 || !caller.waits) return;
    // Its answer may bring a grant that lacks something: a renewal or a token comes with another request.
    const { calls } = this.backend;
    caller.awaitAnswer(calls.timeouts, caller.limitOf(calls));
  }

  take(name: string, options: ResolvedLockOptions, caller: Caller): Promise<Lease> {
    return new Promise((admitted, refused) => {
      this.join(name, options, caller, { admitted, refused });
    });
  }

  /** Releases those of the names that linger, for a call that cannot use them as they are. */
  handBack(names: readonly string[]): void {
    for (const name of names) this.byName.get(name)?.handBack();
  }

  /** Releases all that lingers. From now on nothing does. */
  stopLingering(): void {
    this.lingering = false;
    for (const contender of this.byName.values()) if (contender.lingers) contender.handBack();
  }

  /** How many tickets of this process wait for the name in the queue at the backend. */
  queuedHere(name: string): number {
    let queued = 0;
    for (const contender of this.byTicket.values()) if (contender.name === name && contender.queued) queued += 1;
    for (const contenders of [this.byName, this.readers]) if (contenders.get(name)?.queued) queued += 1;
    return queued;
  }

  /** Only holds that read are left of a lease that was taken to write: lets other readers in. */
  downgrade(lease: Lease): void {
    const { names, ticket } = lease.grant;
    this.readersOf(names[0] as string).adopt(lease);
    this.backend.calls.downgrade({ names, ticket }, lease.options.ttl);
    this.backend.watchdog.watch(lease.grant);
  }

  /** A new ticket for one attempt. No ticket is used twice, so that each answer and message names its attempt. */
  nextTicket(): string {
    return this.beforeTickets + this.nextNumber();
  }

  /** The number of a new ticket, of a contender if there is one. */
  nextNumber(contender?: Contender): number {
    this.tickets += 1;
    if (this.tickets === 1) this.backend.label.announce();
    if (contender?.single) this.byTicket.add(this.beforeTickets + this.tickets, contender);
    return this.tickets;
  }

  removeTicket(ticket: string): void {
    this.byTicket.delete(ticket);
  }

  remove(contender: Contender): void {
    const { names, mode } = contender;
    const name = names[0];
    const contenders = mode === 'read' ? this.readers : this.byName;
    if (contenders.get(name) === contender) contenders.delete(name);
  }

  private readersOf(name: string): ReadingContender {
    const present = this.readers.get(name);
    if (present) return present;
    const contender = new ReadingContender(this, [name], false, 'read');
    this.readers.add(name, contender);
    return contender;
  }

  /** A message of the queue arrived. */
  dispatch(message: QueueMessage): void {
    const { watchdog, releaser } = this.backend;
    // Somebody else may have sent what is none: it counts as lost, and a heartbeat finds out.
    if (typeof message?.ticket !== 'string') return;
    if (message.kind === 'revoked') return watchdog.lose([message.ticket], 'taken');
    const { ticket, name } = message;
    // A reader may have the ticket of an owner, which it was.
    const readers = this.readers.get(name);
    const contender = readers?.knows(ticket) ? readers : (this.byTicket.get(ticket) ?? this.byName.get(name));
    if (message.kind === 'ends') contender?.onLeaseEnds(ticket, message.remaining);
    else if (message.kind === 'wanted') contender?.wantedElsewhere(ticket);
    else if (message.kind !== 'grant' || typeof message.tokens?.first !== 'number') return;
    else if (typeof message.claim !== 'number' || typeof message.waiting !== 'number') return;
    else if (contender?.attempt?.ticket === ticket) contender.attempt.onGrant(message);
    // What it owns was granted by an answer before.
    else if (!contender?.owns(ticket)) releaser.abandon({ names: [name], ticket }, message.claim);
  }
}

/** Those who hear what a backend tells: none of them while it opens, when nothing has been granted yet. */
interface Hearers {
  readonly calls?: Pick<BackendCalls, 'whenConnected'>;
  readonly watchdog?: Pick<Watchdog, 'lose'>;
  readonly contenders?: Contenders;
}

/** The listeners of a module: what a backend tells goes to its locks, its waiters and its calls. */
export function heardBy(
  hearers: Hearers,
): Pick<ModuleContext, 'lost' | 'connected' | 'message' | 'interrupted' | 'reconnected'> {
  return {
    lost: (tickets: readonly string[] | string, _why, reason = 'expired') =>
      hearers.watchdog?.lose(typeof tickets === 'string' ? [tickets] : tickets, reason),
    connected: notWithin(() => hearers.calls?.whenConnected.forEach((listener) => listener())),
    message: (message) => hearers.contenders?.dispatch(message),
    interrupted: notWithin(() => hearers.contenders?.interrupted()),
    reconnected: notWithin(() => hearers.contenders?.reconnected()),
  };
}

/** A backend of the application's may tell it again in each request that it sets off. */
function notWithin(hear: () => void): () => void {
  let within = false;
  return () => {
    if (within) return;
    within = true;
    try {
      hear();
    } finally {
      within = false;
    }
  };
}

/** How long (ms) after a failure the channel is not opened again. */
const PAUSE_AFTER_FAILURE = 1_000;

/**
 * The channel on which the backend sends messages to this process. Waiters save time by messages and never depend on
 * them: while the channel cannot be opened, they wait in the queue all the same, and learn of a grant by heartbeats.
 */
class QueueChannel {
  isOpen = false;
  /** Since when (monotonic, ms) it has been open without an interruption. */
  openedAt = Infinity;
  /** Whether no message arrives, as the backend has told. */
  deaf = false;
  /** Whether it was opened, or that has failed once: a ticket may wait in the queue from then on. */
  tried = false;
  private opening: Promise<void> | undefined;
  private failedAt = -Infinity;

  constructor(
    private readonly calls: BackendCalls,
    private readonly queue: LockQueue,
  ) {}

  /** Resolves when the channel is open, or could not be opened in time. */
  open(): Promise<void> {
    if (this.isOpen || performance.now() - this.failedAt < PAUSE_AFTER_FAILURE) return Promise.resolve();
    return (this.opening ??= this.tryToOpen());
  }

  private async tryToOpen(): Promise<void> {
    try {
      await this.calls.bounded('acquire', [], () => this.queue.listen());
      this.isOpen = true;
      this.openedAt = performance.now();
    } catch {
      this.failedAt = performance.now();
    }
    this.tried = true;
    this.opening = undefined;
  }
}
