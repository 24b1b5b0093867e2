import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultProxy } from '../../support/fault-proxy.js';
import type { Crew } from './crew.js';
import type { Evidence } from './evidence.js';
import { type Random, SETTINGS, STOP } from './settings.js';
import type { Store } from './stores.js';

/** Mischief of every store; each adds its own. */
const OF_ALL = ['kill', 'stop', 'drop'] as const;

interface Prank {
  readonly kind: string;
  /** When in its burst (ms). */
  readonly at: number;
  /** Which process, unless one is aimed at. */
  readonly place: number;
  /** Whether it is to hit a process in the middle of a hold. */
  readonly aimed: boolean;
  /** For how long (ms). */
  readonly standstill: number;
  /** Which way of dropping connections. */
  readonly way: number;
}

/** How often each kind comes in a round of all, with one of each of the store's own. */
const ROUND: readonly string[] = ['kill', 'stop', 'stop', 'stop', 'stop', 'drop', 'drop'];
const LONGEST_BURST = 400;
const LOOKS = 40;
const BETWEEN_LOOKS = 8;

/** Does what a seed says to processes, to their connections and to the store. */
export class Mischief {
  readonly done: Record<string, number>;
  private planned: string[] = [];
  /** The last of each kind of the store's own: a server that restarts cannot be restarted. */
  private readonly last = new Map<string, Promise<unknown>>();

  constructor(
    private readonly random: Random,
    private readonly crew: Crew,
    private readonly evidence: Evidence,
    private readonly store: Store,
  ) {
    this.done = Object.fromEntries([...OF_ALL, ...Object.keys(store.faults)].map((kind) => [kind, 0]));
  }

  /** Whether every kind came at least once. */
  get complete(): boolean {
    return Object.values(this.done).every((times) => times > 0);
  }

  /**
   * One to three pranks at about the same time. Nobody stands still when it is over, and everybody who was killed is
   * replaced.
   */
  async burst(): Promise<void> {
    // All is drawn before anything is done, so that the plan does not depend on who is faster.
    const pranks = Array.from({ length: this.random.whole(1, 3) }, () => this.next());
    await Promise.all(pranks.map((prank) => this.play(prank)));
    await this.crew.complete();
  }

  private next(): Prank {
    if (this.planned.length === 0) this.planned = this.random.shuffled([...ROUND, ...Object.keys(this.store.faults)]);
    return {
      kind: this.planned.pop() as string,
      at: this.random.whole(0, LONGEST_BURST),
      place: this.random.whole(0, SETTINGS.children - 1),
      aimed: this.random.whole(0, 2) > 0,
      standstill: this.random.whole(STOP.least, STOP.most),
      way: this.random.whole(0, 2),
    };
  }

  private async play(prank: Prank): Promise<void> {
    await sleep(prank.at);
    await this.carryOut(prank);
    this.done[prank.kind] = (this.done[prank.kind] ?? 0) + 1;
  }

  private async carryOut(prank: Prank): Promise<void> {
    const { kind, place, standstill, way } = prank;
    if (kind === 'kill') {
      await this.crew.kill(await this.victim(prank));
    } else if (kind === 'stop') {
      const victim = await this.victim(prank);
      this.crew.stop(victim);
      await sleep(standstill);
      this.crew.resume(victim);
    } else if (kind !== 'drop') {
      const fault = (this.last.get(kind) ?? Promise.resolve()).then(() => this.store.faults[kind]?.());
      this.last.set(kind, fault);
      await fault;
    } else {
      const { proxies } = this.crew;
      this.drop(proxies[place % proxies.length] as FaultProxy, way);
    }
  }

  /**
   * A contender that is seen twice in the middle of the same hold will probably stay there until the signal arrives.
   */
  private async victim({ aimed, place }: Prank): Promise<number> {
    if (!aimed) return place;
    let before: readonly (string | undefined)[] = [];
    for (let look = 0; look < LOOKS; look++) {
      const holders = await this.evidence.holders();
      const seenTwice = holders.find((holder, name) => holder !== undefined && holder === before[name]);
      const found = seenTwice === undefined ? undefined : this.crew.placeOf(Number.parseInt(seenTwice, 10));
      if (found !== undefined) return found;
      before = holders;
      await sleep(BETWEEN_LOOKS);
    }
    return place;
  }

  /** All connections at once, or the one that sends the next request: before it was carried out, or after. */
  private drop(proxy: FaultProxy, way: number): void {
    if (way === 0) proxy.reset();
    else void proxy.lose(this.store.request, way === 1);
  }
}
