import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { FaultProxy } from '../../support/fault-proxy.js';
import type { Crew } from './crew.js';
import type { Evidence } from './evidence.js';
import type { Random } from './random.js';
import { SETTINGS, STOP } from './settings.js';

export const KINDS = ['kill', 'stop', 'flush', 'clientKill', 'pubsubKill', 'drop'] as const;
export type Kind = (typeof KINDS)[number];

interface Prank {
  readonly kind: Kind;
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

/** How often each kind comes in a round of all. */
const ROUND: readonly Kind[] = [
  'kill',
  'stop',
  'stop',
  'stop',
  'stop',
  'flush',
  'clientKill',
  'pubsubKill',
  'drop',
  'drop',
];
const LONGEST_BURST = 400;
const LOOKS = 40;
const BETWEEN_LOOKS = 8;
const COMMAND = 'eval';

/** Does what a seed says to processes, to their connections and to the scripts of Redis. */
export class Mischief {
  readonly done: Record<Kind, number> = { kill: 0, stop: 0, flush: 0, clientKill: 0, pubsubKill: 0, drop: 0 };
  private readonly admin: Redis;
  private planned: Kind[] = [];

  constructor(
    private readonly random: Random,
    private readonly crew: Crew,
    private readonly evidence: Evidence,
    redisPort: number,
  ) {
    this.admin = new Redis({ host: '127.0.0.1', port: redisPort });
  }

  /** Whether every kind came at least once. */
  get complete(): boolean {
    return KINDS.every((kind) => this.done[kind] > 0);
  }

  /** One to three pranks at about the same time. Nobody stands still when it is over, and everybody who was killed is replaced. */
  async burst(): Promise<void> {
    // All is drawn before anything is done, so that the plan does not depend on who is faster.
    const pranks = Array.from({ length: this.random.whole(1, 3) }, () => this.next());
    await Promise.all(pranks.map((prank) => this.play(prank)));
    await this.crew.complete();
  }

  close(): void {
    this.admin.disconnect();
  }

  private next(): Prank {
    if (this.planned.length === 0) this.planned = this.random.shuffled(ROUND);
    return {
      kind: this.planned.pop() as Kind,
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
    this.done[prank.kind] += 1;
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
    } else if (kind === 'flush') {
      await this.admin.script('FLUSH');
    } else if (kind === 'clientKill') {
      await this.admin.call('CLIENT', 'KILL', 'TYPE', 'normal');
    } else if (kind === 'pubsubKill') {
      await this.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    } else {
      const { proxies } = this.crew;
      this.drop(proxies[place % proxies.length] as FaultProxy, way);
    }
  }

  /** Whoever is seen twice in the middle of the same hold is likely to stay there until the signal arrives. */
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
    else void proxy.lose(COMMAND, way === 1);
  }
}
