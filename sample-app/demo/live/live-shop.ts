import { setTimeout as sleep } from 'node:timers/promises';
import { ConflictException } from '@nestjs/common';
import type { Environment } from '../environment.js';
import type { LockBackendName } from '../shop-facts.js';
import type { Shop } from '../shop.js';
import { plural, reasonOf } from '../words.js';
import { LiveSale, LOST_LOCK, STALE_WRITE } from './live-sale.js';
import type { LiveEvents, LiveState, LockState, LogEntry, SaleResult, SaleSettings } from './live-state.js';
import { LockWatch } from './lock-watch.js';
import { ShopFloor } from './shop-floor.js';

const MOST_RESULTS = 20;
const MOST_LOG_ENTRIES = 60;
/** Milliseconds between two looks at the lock. */
const LOOK = 100;
/** Milliseconds for which a holder of the lock is looked for, and in which a stopped process comes to a stop. */
const CATCH = 4_000;
const SETTLE = 50;

/** The shop of the live page: one sale at a time, and what people do to its processes meanwhile. */
export class LiveShop {
  readonly log = new EventLog(() => this.changed('log'));
  private readonly floor: ShopFloor;
  private phase: LiveState['phase'] = 'idle';
  private sale: LiveSale | null = null;
  private sales = 0;
  private watch: LockWatch | undefined;
  private lock: LockState | null = null;
  private finished: readonly SaleResult[] = [];
  private turn: Promise<unknown> = Promise.resolve();

  /** `changed` is called with the name of the event whose data has changed. */
  constructor(
    private readonly environment: Environment,
    private readonly changed: (event: keyof LiveEvents) => void,
  ) {
    this.floor = new ShopFloor(environment, (number) => {
      this.log.add('bad', `Process ${number} has ended`);
      this.changed('state');
    });
  }

  /** Starts the processes before the first sale. */
  async open(instances: number, backend: LockBackendName): Promise<void> {
    await this.floor.prepare(instances, backend);
    this.changed('state');
  }

  /** The data of the events, but for the number of viewers. */
  present(): Omit<LiveEvents, 'state'> & { readonly state: Omit<LiveState, 'viewers'> } {
    const { phase, lock, sale, finished, floor } = this;
    const processes = floor.list().map(({ shop, ...process }) => ({
      ...process,
      accepted: sale?.acceptedOf(shop) ?? 0,
      open: sale?.openOf(shop) ?? 0,
    }));
    const course = sale?.course ?? [];
    const moment = course.at(-1) ?? null;
    return {
      state: { phase, redis: floor.redis, processes, lock, sale: sale?.state() ?? null, moment },
      course,
      results: finished,
      log: this.log.entries,
    };
  }

  /**
   * Begins a sale, which goes on when this returns.
   *
   * @throws ConflictException while there is one
   */
  start(settings: SaleSettings): void {
    if (this.phase !== 'idle') {
      throw new ConflictException('A sale is under way: wait until it ends, or end it, then start the next one');
    }
    this.phase = 'preparing';
    this.lock = null;
    this.sales += 1;
    this.sale = new LiveSale(this.sales, settings, this.environment, {
      onMoment: () => this.changed('state'),
      onRefusal: (kind, shop) => this.refused(kind, shop),
      onSilence: (message) => this.log.add('bad', `Sale ${this.sales}: ${message}`),
    });
    this.changed('state');
    this.changed('course');
    void this.inTurn(() => this.prepare(settings))
      .then(() => this.sell(this.sale as LiveSale))
      .catch((error: unknown) => {
        if (!this.environment.ended) this.log.add('bad', `The sale failed: ${reasonOf(error)}`);
      })
      .finally(() => {
        this.phase = 'idle';
        this.changed('state');
      });
  }

  /** Ends the sale under way; what was sold until then is counted. */
  stop(): void {
    if (this.phase !== 'selling') throw new ConflictException('No sale is under way');
    this.sale?.stop();
  }

  freeze(number: number): Promise<void> {
    return this.strike(faultText('froze', number), () => this.floor.freeze(number));
  }

  cutOff(number: number): Promise<void> {
    return this.strike(faultText('cut off', number), () => this.floor.cutOff(number));
  }

  kill(number: number): Promise<void> {
    return this.strike(faultText('killed', number), () => this.floor.kill(number));
  }

  repair(number: number): Promise<void> {
    return this.control(async () => {
      const before = this.floor.conditionOf(number);
      if (before === 'running') return;
      await this.floor.repair(number);
      const verb = { frozen: 'goes on where it stood', 'cut off': 'is connected again', dead: 'was started again' };
      this.log.add('note', `Process ${number} ${verb[before]}`);
    });
  }

  stopRedis(): Promise<void> {
    return this.strike('stopped Redis', () => this.floor.stopRedis());
  }

  startRedis(): Promise<void> {
    return this.control(async () => {
      if (this.floor.redis !== 'stopped') return;
      await this.floor.startRedis();
      this.log.add('note', 'Redis was started again, and is empty: every lock in it is gone');
    });
  }

  /**
   * Freezes the process that holds the lock of the product on sale, while it holds it.
   *
   * @throws ConflictException where there is none, or it could not be caught
   */
  freezeHolder(): Promise<void> {
    return this.control(async () => {
      const number = await this.catchHolder();
      const text = `${faultText('froze', number)} while it held the lock`;
      this.sale?.faults.push(text);
      this.log.add('fault', `You ${text}`);
    });
  }

  async close(): Promise<void> {
    this.floor.close();
    await this.watch?.[Symbol.asyncDispose]();
  }

  private async prepare({ instances, backend }: SaleSettings): Promise<void> {
    await this.floor.prepare(instances, backend);
    await this.watch?.[Symbol.asyncDispose]();
    this.watch = await LockWatch.open(this.environment.shopSettings, (pid) => this.floor.numberWithPid(pid));
  }

  private async sell(sale: LiveSale): Promise<void> {
    const { strategy, orders, stock } = sale.settings;
    this.phase = 'selling';
    this.log.add('note', `Sale ${sale.number} (${strategy}): ${plural(orders, 'order')} for ${plural(stock, 'piece')}`);
    const looking = this.watchLock(sale);
    const result = await sale.run().finally(() => (this.phase = 'preparing'));
    await looking;
    this.finished = [...this.finished, result].slice(-MOST_RESULTS);
    this.changed('results');
    this.log.add(result.sound ? 'good' : 'bad', resultText(result));
  }

  private async watchLock(sale: LiveSale): Promise<void> {
    let reminded = false;
    do {
      this.lock = (await this.watch?.look(`stock:${sale.sku}`)) ?? null;
      const { open } = sale.state();
      if (sale.settled && open > 0 && !reminded) {
        reminded = true;
        this.log.add(
          'note',
          `Every order is answered, and the sale waits for ${plural(open, 'request')} at processes that stand still: resume them, and see what becomes of their writes`,
        );
      }
      await sleep(LOOK);
    } while (this.phase === 'selling');
  }

  private async catchHolder(): Promise<number> {
    const key = `stock:${this.sale?.sku ?? ''}`;
    const until = performance.now() + CATCH;
    while (this.phase === 'selling' && performance.now() < until) {
      const number = (await this.watch?.look(key))?.holder;
      if (typeof number !== 'number' || this.floor.conditionOf(number) !== 'running') continue;
      this.floor.freeze(number);
      await sleep(SETTLE);
      if ((await this.watch?.look(key))?.holder === number) return number;
      await this.floor.repair(number);
    }
    throw new ConflictException('No running process of the shop held the lock: only lock and fenced take one');
  }

  private refused(kind: string, shop: Shop): void {
    const text = refusalText(kind, this.floor.numberOf(shop));
    if (text !== undefined) this.log.add('good', text);
  }

  private strike(text: string, fault: () => unknown): Promise<void> {
    return this.control(async () => {
      const faults = this.sale?.faults ?? [];
      // Noted before: orders that the fault makes fail are sent again.
      faults.push(text);
      try {
        await fault();
      } catch (error) {
        faults.pop();
        throw error;
      }
      this.log.add('fault', `You ${text}`);
    });
  }

  /** Runs one thing that the page asked for after the other. */
  private async control(work: () => Promise<void>): Promise<void> {
    if (this.phase === 'preparing') throw new ConflictException('The shop is being prepared: try again in a moment');
    await this.inTurn(work).finally(() => this.changed('state'));
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.turn.then(work);
    this.turn = done.catch(() => {});
    return done;
  }
}

/** The last things that happened, the oldest first. */
class EventLog {
  private kept: readonly LogEntry[] = [];
  private lastId = 0;

  constructor(private readonly changed: () => void) {}

  get entries(): readonly LogEntry[] {
    return this.kept;
  }

  add(kind: LogEntry['kind'], text: string): void {
    this.lastId += 1;
    this.kept = [...this.kept, { id: this.lastId, at: Date.now(), text, kind }].slice(-MOST_LOG_ENTRIES);
    this.changed();
  }
}

/** As in "You froze process 2". */
function faultText(verb: string, number: number): string {
  return `${verb} process ${number}`;
}

/** What an answer means that shows how a strategy defends the stock; `undefined` for other answers. */
function refusalText(kind: string, number: number | undefined): string | undefined {
  const who = number === undefined ? 'a process that has ended' : `process ${number}`;
  if (kind === STALE_WRITE) return `Stale write refused: the row has seen a higher fencing token than that of ${who}`;
  if (kind === LOST_LOCK) return `Lost lock noticed: ${who} gave an order up, because its lease had ended`;
  return undefined;
}

function resultText({ number, settings, ...result }: SaleResult): string {
  const sold = `Sale ${number} (${settings.strategy}) ${result.ending === 'stopped' ? 'was ended early and sold' : 'sold'}`;
  if (result.oversold > 0) return `${sold} ${plural(result.oversold, 'piece')} more than it had`;
  if (!result.sound)
    return `${sold} ${plural(result.accepted, 'piece')}, and its stock shows ${result.stockLeft} as left`;
  return `${sold} ${plural(result.accepted, 'piece')}, and none twice`;
}
