import type { LockQueue, QueueListener, QueueMessage } from '../../contracts/lock-queue.js';
import { BriefMap } from '../../timing/brief-collections.js';
import type { Lease } from '../grant/lease.js';
import type { BackendCalls } from '../grant/store.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Caller } from './caller.js';
import { Contender } from './line.js';
import type { QueueingBackend } from './named-backend.js';
import { acquireLease } from './polling.js';

/** How much longer than before a round trip may take, at each that is measured. */
const FORGETS = 1.1;

/**
 * The contenders of one process at a backend: one for each name that a caller wants, and one for each caller with
 * `order: 'fifo'`, which waits at the backend with a ticket of its own.
 */
export class Contenders {
  readonly channel: QueueChannel;
  private readonly byName = new BriefMap<string, Contender>();
  /** Those that read. */
  private readonly readers = new BriefMap<string, Contender>();
  /** Those of `order: 'fifo'`. */
  private readonly byTicket = new BriefMap<string, Contender>();
  private tickets = 0;
  /** How long (ms) a request of a waiter takes: the least of the last ones. */
  roundTrip = 0;
  /** Whether released names may stay with the process for their `linger`: a message tells when others want them. */
  lingering: boolean;

  constructor(
    readonly backend: QueueingBackend,
    readonly queue: LockQueue,
  ) {
    this.lingering = queue.pace === undefined;
    this.channel = new QueueChannel(backend.calls, queue, {
      prefix: backend.calls.prefix,
      process: backend.instance,
      onMessage: (message) => this.dispatch(message),
      onReconnect: () => {
        this.channel.openedAt = performance.now();
        for (const contender of this.byName.values()) contender.onReconnect();
        for (const contender of this.readers.values()) contender.onReconnect();
        for (const contender of this.byTicket.values()) contender.onReconnect();
      },
    });
  }

  /** A request of a waiter was answered after `took` ms. */
  answeredWithin(took: number): void {
    this.roundTrip = this.roundTrip === 0 ? took : Math.min(took, FORGETS * this.roundTrip);
  }

  /** How many contenders there are. */
  get size(): number {
    return this.byName.size + this.readers.size + this.byTicket.size;
  }

  /** The caller waits for the name; then one of the two functions is called. */
  join(
    name: string,
    options: ResolvedLockOptions,
    caller: Caller,
    admit: (lease: Lease) => void,
    refuse: (error: unknown) => void,
  ): void {
    const single = options.order === 'fifo';
    const reads = options.mode === 'read';
    let contender = single ? undefined : (reads ? this.readers : this.byName).get(name);
    if (contender?.lingers && !contender.turn.resume()) contender = undefined;
    if (single || reads) this.handBack([name]);
    // Others of this process ask for it, or have it.
    if (caller.first && contender && !contender.idle) caller.asksForName();
    // Who asks once does not wait behind others: it is refused if one of them holds the name, else asks by itself.
    if (contender && options.wait === 0 && !contender.idle && !contender.turn.available) {
      if (contender.holds) {
        caller.meetContention();
        refuse(contender.refusal(caller.waited()));
      } else acquireLease(this, [name], options, caller).then(admit, refuse);
      return;
    }
    if (!contender) {
      if (reads) contender = this.readersOf(name);
      else {
        contender = new Contender(this, name, single, 'write');
        if (!single) this.byName.add(name, contender);
      }
    }
    caller.enter(contender, options, admit, refuse);
    contender.join(caller);
    if (!caller.triesOnce || !caller.waits) return;
    // Its answer may bring a grant that lacks something: a renewal or a token comes with another request.
    const { calls } = this.backend;
    caller.awaitAnswer(calls.timeouts, caller.limitOf(calls));
  }

  take(name: string, options: ResolvedLockOptions, caller: Caller): Promise<Lease> {
    return new Promise((resolve, reject) => {
      this.join(name, options, caller, resolve, reject);
    });
  }

  /** Releases those of the names that linger, for a call that cannot use them as they are. */
  handBack(names: readonly string[]): void {
    for (const name of names) this.byName.get(name)?.turn.handBack();
  }

  /** Releases all that lingers. From now on nothing does. */
  stopLingering(): void {
    this.lingering = false;
    for (const contender of this.byName.values()) if (contender.lingers) contender.turn.handBack();
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

  /**
   * A new ticket for one attempt, of a contender if there is one. No ticket is used twice, so that each answer and
   * message names its attempt.
   */
  nextTicket(contender?: Contender): string {
    this.tickets += 1;
    if (this.tickets === 1) this.backend.label.announce();
    const ticket = `${this.backend.instance}:${this.tickets}`;
    if (contender?.single) this.byTicket.add(ticket, contender);
    return ticket;
  }

  removeTicket(ticket: string): void {
    this.byTicket.delete(ticket);
  }

  remove(contender: Contender): void {
    const { name, mode } = contender;
    const contenders = mode === 'read' ? this.readers : this.byName;
    if (contenders.get(name) === contender) contenders.delete(name);
  }

  private readersOf(name: string): Contender {
    const present = this.readers.get(name);
    if (present) return present;
    const contender = new Contender(this, name, false, 'read');
    this.readers.add(name, contender);
    return contender;
  }

  private dispatch(message: QueueMessage): void {
    const { watchdog, releaser } = this.backend;
    if (message.kind === 'revoked') return watchdog.lose([message.ticket], 'taken');
    const { ticket, name } = message;
    // A reader may have the ticket of an owner, which it was.
    const readers = this.readers.get(name);
    const contender = readers?.knows(ticket) ? readers : (this.byTicket.get(ticket) ?? this.byName.get(name));
    if (message.kind === 'ends') contender?.onLeaseEnds(ticket, message.remaining);
    else if (message.kind === 'wanted') contender?.turn.wantedElsewhere(ticket);
    else if (contender?.attempt?.ticket === ticket) contender.attempt.onGrant(message);
    // What it owns was granted by an answer before.
    else if (!contender?.turn.owns(ticket)) releaser.abandon({ names: [name], ticket }, message.claim);
  }
}

/** How long (ms) after a failure the channel is not opened again. */
const PAUSE_AFTER_FAILURE = 1_000;

/**
 * The channel on which the backend sends messages to this process. Waiters save time by messages and never depend on
 * them: while the channel cannot be opened, they wait in the queue all the same, and learn of a grant by heartbeats.
 */
export class QueueChannel {
  isOpen = false;
  /** Since when (monotonic, ms) it has been open without an interruption. */
  openedAt = Infinity;
  /** Whether it was opened, or that has failed once: a ticket may wait in the queue from then on. */
  tried = false;
  private opening: Promise<void> | undefined;
  private failedAt = -Infinity;

  constructor(
    private readonly calls: BackendCalls,
    private readonly queue: LockQueue,
    private readonly listener: QueueListener,
  ) {}

  /** Resolves when the channel is open, or could not be opened in time. */
  open(): Promise<void> {
    if (this.isOpen || performance.now() - this.failedAt < PAUSE_AFTER_FAILURE) return Promise.resolve();
    return (this.opening ??= this.tryToOpen());
  }

  close(): void {
    this.queue.unlisten?.(this.listener);
  }

  private async tryToOpen(): Promise<void> {
    try {
      await this.calls.bounded('acquire', [], () => this.queue.listen(this.listener));
      this.isOpen = true;
      this.openedAt = performance.now();
    } catch {
      this.failedAt = performance.now();
    }
    this.tried = true;
    this.opening = undefined;
  }
}
