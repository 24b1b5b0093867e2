import { setTimeout as sleep } from 'node:timers/promises';
import { build } from 'hdr-histogram-js';
import type { Environment } from '../environment.js';
import type { Moment } from '../html-report/report-data.js';
import { kindOfError, sendOrders, type Answer, type Reply } from '../load.js';
import { timeLimitFor } from '../options.js';
import { putOnSale, type Shop } from '../shop.js';
import { audit, holds, stockOf } from '../verdict.js';
import type { SaleResult, SaleSettings, SaleState } from './live-state.js';

/** The row refused a holder whose lock had passed on: status and code of the answer. */
export const STALE_WRITE = '409 STALE_FENCING_TOKEN';
/** The process noticed that its lease had ended. */
export const LOST_LOCK = '500 LOCK_LOST';

/** Milliseconds between two looks at the stock. */
const INTERVAL = 200;
/** Milliseconds over which orders are counted to give their rate. */
const WINDOW = 1_000;
const MOST_MOMENTS = 600;

interface SaleListener {
  /** The numbers have changed. */
  readonly onMoment: () => void;
  readonly onRefusal: (kind: string, shop: Shop) => void;
  readonly onSilence: (message: string) => void;
}

/** One sale, from the first order to the audit. */
export class LiveSale {
  readonly sku: string;
  /** What was done to the shop; from the first fault on, unanswered orders are sent again. */
  readonly faults: string[] = [];
  private moments: Moment[];
  private readonly seen: Record<Answer, number> = { accepted: 0, outOfStock: 0, busy: 0, errors: 0 };
  private readonly refusals: Record<string, number> = {};
  private readonly acceptedBy = new Map<Shop, number>();
  private readonly openAt = new Map<Shop, number>();
  private readonly latency = build();
  private readonly stopping = new AbortController();
  private readonly signal: AbortSignal;
  private start = performance.now();
  private stockLeft: number;
  private over = false;

  constructor(
    readonly number: number,
    readonly settings: SaleSettings,
    private readonly environment: Environment,
    private readonly listener: SaleListener,
  ) {
    this.sku = `teapot-${number}-${settings.strategy}`;
    this.stockLeft = settings.stock;
    this.moments = [{ seconds: 0, accepted: 0, stockLeft: settings.stock }];
    this.signal = AbortSignal.any([this.stopping.signal, environment.signal]);
  }

  get course(): readonly Moment[] {
    return this.moments;
  }

  /** Whether every order has its answer, so that only requests are left whose orders were sent again. */
  get settled(): boolean {
    const answers = Object.values(this.seen).reduce((sum, count) => sum + count, 0);
    return answers === this.settings.orders;
  }

  acceptedOf(shop: Shop): number {
    return this.acceptedBy.get(shop) ?? 0;
  }

  openOf(shop: Shop): number {
    return this.openAt.get(shop) ?? 0;
  }

  /** Sends no more orders, and waits for none. */
  stop(): void {
    this.stopping.abort();
  }

  async run(): Promise<SaleResult> {
    const { strategy, stock, orders, concurrency } = this.settings;
    await putOnSale(this.environment.shops[0] as Shop, this.sku, stock);
    this.start = performance.now();
    const watching = this.watchStock();
    const { result } = await sendOrders({
      shops: this.environment.shops,
      strategy,
      sku: this.sku,
      orders,
      concurrency,
      timeLimit: timeLimitFor(orders),
      sendAgain: () => this.faults.length > 0,
      onAttempt: (shop, reply) => void this.follow(shop, reply),
      onAnswer: (answer, shop) => this.answered(answer, shop),
      onSilence: (message) => this.listener.onSilence(message),
      signal: this.signal,
    }).finally(() => (this.over = true));
    await watching;
    const audited = await audit(this.environment.database, this.sku, stock, result);
    this.stockLeft = audited.stockLeft;
    this.record();
    return {
      number: this.number,
      settings: this.settings,
      accepted: result.accepted,
      stockLeft: audited.stockLeft,
      oversold: audited.oversoldBy,
      lost: result.errors,
      resent: result.resent,
      perSecond: result.soldPerSecond,
      p99: result.p99,
      standstill: result.standstill,
      staleWrites: this.refusals[STALE_WRITE] ?? 0,
      lostLocks: this.refusals[LOST_LOCK] ?? 0,
      faults: this.faults,
      sound: holds(audited),
      ending: this.stopping.signal.aborted ? 'stopped' : 'done',
    };
  }

  state(): SaleState {
    const { accepted, outOfStock, busy, errors } = this.seen;
    return {
      number: this.number,
      settings: this.settings,
      seconds: this.moments.at(-1)?.seconds ?? 0,
      stockLeft: this.stockLeft,
      accepted,
      oversold: Math.max(0, accepted - this.settings.stock),
      outOfStock,
      busy,
      errors,
      perSecond: this.over ? 0 : this.rate(),
      p99: this.latency.getValueAtPercentile(99) / 1_000,
      open: [...this.openAt.values()].reduce((sum, count) => sum + count, 0),
      refusals: this.refusals,
    };
  }

  /** Counts one attempt, whose reply may come after the order was sent again. */
  private async follow(shop: Shop, reply: Promise<Reply | Error>): Promise<void> {
    const start = performance.now();
    this.openAt.set(shop, this.openOf(shop) + 1);
    const came = await reply;
    this.openAt.set(shop, this.openOf(shop) - 1);
    this.latency.recordValue((performance.now() - start) * 1_000);
    if (!(came instanceof Error) && came.status === 201) return;
    const kind = kindOfError(came);
    if (kind === '409 OUT_OF_STOCK' || this.signal.aborted) return;
    this.refusals[kind] = (this.refusals[kind] ?? 0) + 1;
    this.listener.onRefusal(kind, shop);
  }

  private answered(answer: Answer, shop: Shop): void {
    this.seen[answer] += 1;
    if (answer === 'accepted') this.acceptedBy.set(shop, this.acceptedOf(shop) + 1);
  }

  private async watchStock(): Promise<void> {
    while (!this.over) {
      // The audit after the sale says whether the database works; until then the last stock stays.
      this.stockLeft = await stockOf(this.environment.database, this.sku).catch(() => this.stockLeft);
      this.record();
      await sleep(INTERVAL);
    }
  }

  private record(): void {
    const seconds = (performance.now() - this.start) / 1_000;
    this.moments.push({ seconds, accepted: this.seen.accepted, stockLeft: this.stockLeft });
    if (this.moments.length > MOST_MOMENTS) this.moments = this.moments.filter((_, index) => index % 2 === 0);
    this.listener.onMoment();
  }

  private rate(): number {
    const now = (performance.now() - this.start) / 1_000;
    const before = this.moments.findLast(({ seconds }) => now - seconds >= WINDOW / 1_000) ?? this.moments[0];
    if (!before) return 0;
    return (this.seen.accepted - before.accepted) / Math.max(now - before.seconds, 0.001);
  }
}
