import type { Moment } from '../html-report/report-data.js';
import type { LockBackendName, Strategy } from '../shop-facts.js';

/** What a sale is started with. */
export interface SaleSettings {
  readonly strategy: Strategy;
  /** Where the strategies lock and fenced keep their locks. */
  readonly backend: LockBackendName;
  readonly instances: number;
  readonly stock: number;
  readonly orders: number;
  readonly concurrency: number;
}

/** What the server sends to the page, by the names of the events. All of it when a page connects. */
export interface LiveEvents {
  readonly state: LiveState;
  /** The whole course of the sale; the `moment` of each `state` continues it. */
  readonly course: readonly Moment[];
  readonly results: readonly SaleResult[];
  readonly log: readonly LogEntry[];
}

export interface LiveState {
  /** `preparing`: processes of the shop start, and the product is put on sale. */
  readonly phase: 'idle' | 'preparing' | 'selling';
  /** `given`: it belongs to someone else (`REDIS_URL`), so that the page cannot stop it. */
  readonly redis: 'running' | 'stopped' | 'given';
  readonly processes: readonly ProcessState[];
  readonly lock: LockState | null;
  /** The sale under way, or the last one. */
  readonly sale: SaleState | null;
  /** The newest moment of the course. */
  readonly moment: Moment | null;
  /** Pages that show this now. */
  readonly viewers: number;
}

export interface ProcessState {
  /** From 1. */
  readonly number: number;
  readonly pid: number;
  readonly condition: 'running' | 'frozen' | 'cut off' | 'dead';
  /** Whether it can be cut off: from servers that the demo started itself. */
  readonly separable: boolean;
  readonly accepted: number;
  /** Requests that it has not answered yet. */
  readonly open: number;
}

/** The lock of the product on sale. */
export interface LockState {
  /** The number of the process that holds it, `null` if nobody does, or the name of another holder. */
  readonly holder: number | string | null;
  readonly token: number | null;
  /** Processes that wait in the queue at the store. */
  readonly waiting: number;
  /** Milliseconds left of the lease. */
  readonly ttl: number;
  /** The last holders that were seen, the newest first. */
  readonly grants: readonly Grant[];
  /** Why none of the above is known at present. */
  readonly unknown?: string;
}

export interface Grant {
  readonly token: number;
  readonly holder: number | string;
}

export interface SaleState {
  readonly number: number;
  readonly settings: SaleSettings;
  readonly seconds: number;
  /** As the database shows it. */
  readonly stockLeft: number;
  readonly accepted: number;
  readonly oversold: number;
  readonly outOfStock: number;
  readonly busy: number;
  readonly errors: number;
  /** Orders accepted in the last second. */
  readonly perSecond: number;
  /** Milliseconds until 99 % of the requests were answered. */
  readonly p99: number;
  /** Requests without an answer, by process or not sent again. */
  readonly open: number;
  /** Answers other than "accepted" and "out of stock", also to orders that were sent again, by status and code. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** What a sale that has ended came to. */
export interface SaleResult {
  readonly number: number;
  readonly settings: SaleSettings;
  readonly accepted: number;
  readonly stockLeft: number;
  readonly oversold: number;
  readonly lost: number;
  readonly resent: number;
  readonly perSecond: number;
  readonly p99: number;
  /** Milliseconds: the longest time in which nothing was sold. */
  readonly standstill: number;
  /** Writes that the row refused, because a later holder had shown its fencing token. */
  readonly staleWrites: number;
  /** Orders that a process gave up because it had lost its lock. */
  readonly lostLocks: number;
  /** What was done to the shop during the sale. */
  readonly faults: readonly string[];
  /** Whether stock, orders and answers agree. */
  readonly sound: boolean;
  readonly ending: 'done' | 'stopped';
}

export interface LogEntry {
  /** Never reused. */
  readonly id: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly text: string;
  readonly kind: 'note' | 'fault' | 'good' | 'bad';
}
