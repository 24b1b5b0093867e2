// What must hold of locks in each schedule, from what the application sees: its calls, its holds, and what is left.

import type { Lock } from '../../../lib/lock/hold/lock.js';
import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';
import type { Verdict } from '../verdict.js';
import type { World } from '../world.js';
import { LockOrder } from './lock-order.js';

/** Milliseconds by which a limit may be passed: timers of a busy loop, and the answer that decides. */
const SLACK = 400;
/** Milliseconds for which a name may be free although somebody waits: without faults, no claim has to run out. */
const LONGEST_FREE = 200;

/** Milliseconds after a restart of Redis by which each holder has asked whether it still holds. */
export const LEARNS = 1_000;

/** A span in which a process trusts its lock. */
interface Trust {
  readonly from: number;
  to: number;
}

export interface Hold {
  readonly process: SimulatedProcess;
  readonly names: readonly string[];
  readonly reads: boolean;
  readonly call: Call;
  /** What was asked for, in ms. */
  readonly ttl: number;
  readonly token: number;
  /** Its ticket. */
  readonly owner: string;
  toldOfOwner: boolean;
  readonly trusted: Trust[];
  lock: Lock | undefined;
  /** Whether its signal has been read, so that a loss must be told. */
  signalled: boolean;
  over: boolean;
}

export interface Call {
  readonly process: SimulatedProcess;
  readonly names: readonly string[];
  readonly wait: number;
  readonly since: number;
  readonly stoodStill: number;
  /** How often each other process has entered since then, or since its own process did, and when that was. */
  readonly passedBy: Map<SimulatedProcess, number>;
  passedSince: number;
}

interface Tokens {
  any: number;
  write: number;
  /** When the last token was seen. */
  at: number;
}

export class LockRules {
  readonly calls = new Set<Call>();
  entries = 0;
  private toldOfEnd = false;
  readonly order: LockOrder;
  private readonly holds = new Set<Hold>();
  private readonly tokens = new Map<string, Tokens>();
  /** By owner: when the first of the calls was made that got it. */
  private readonly askedAt = new Map<string, number>();
  /** By process and owner: when the last hold ended, if its process did not wait for the answer. */
  private readonly givenBack = new Map<string, number>();
  /** By name: since when it is free although somebody waits. */
  private readonly freeSince = new Map<string, number>();

  constructor(
    private readonly world: World,
    private readonly server: Server,
    private readonly verdict: Verdict,
  ) {
    this.order = new LockOrder(server, verdict);
  }

  /** A call that waits for a lock. */
  asked(process: SimulatedProcess, names: readonly string[], wait: number): Call {
    const { time, stoodStill } = process;
    const call = { process, names, wait, since: time, stoodStill, passedBy: new Map(), passedSince: time };
    this.calls.add(call);
    return call;
  }

  ended(call: Call, outcome: string): void {
    this.calls.delete(call);
    const { process, names, since } = call;
    this.world.note(
      process.name,
      () => `${outcome} ${names.join(' and ')} after ${(process.time - since).toFixed(1)} ms`,
    );
  }

  /** The application has entered with this lock. */
  entered(call: Call, reads: boolean, ttl: number, lock: Lock): Hold {
    const { process, names } = call;
    const token = lock.fencingToken;
    this.givenBack.delete(`${process.name} ${lock.owner}`);
    const { owner } = lock;
    if (!this.askedAt.has(owner)) this.askedAt.set(owner, call.since);
    const state = { trusted: [], signalled: false, toldOfOwner: false, over: false };
    const hold: Hold = { process, names, call, reads, ttl, token, owner, lock, ...state };
    this.entries += 1;
    this.holds.add(hold);
    this.look(hold);
    for (const name of names) this.order.checkPassed(name, process, this.calls);
    this.world.note(
      process.name,
      () => `${reads ? 'READS' : 'HOLDS'} ${names.join(' and ')} by ${owner.slice(-6)}, token ${token}`,
    );
    return hold;
  }

  /** The process no longer trusts the lock: it released it, lost it or died. */
  left(hold: Hold, how: string): void {
    if (hold.over) return;
    hold.over = true;
    const { process, names, trusted } = hold;
    const last = trusted.at(-1);
    if (last) last.to = Math.min(last.to, process.time);
    hold.lock = undefined;
    this.world.note(process.name, () => `${how} ${names.join(' and ')}`);
    // Its code may be ahead of the world.
    this.world.at(process.time, () => this.holds.delete(hold));
  }

  /** The process goes on without an answer: its lock lingers, or its release is in the background. */
  gaveBack({ process }: Hold, owner: string): void {
    const shared = [...this.holds].some((other) => !other.over && other.lock?.owner === owner);
    if (!shared) this.givenBack.set(`${process.name} ${owner}`, process.time);
  }

  /** Without faults, a call is not refused because of a hold of its own process that had ended before it began. */
  checkRefusal({ process, names, since }: Call, owner: string): void {
    const ended = this.givenBack.get(`${process.name} ${owner}`);
    if (ended === undefined || ended >= since) return;
    // Another call of the process may have it since, for more names, or have not entered yet.
    const others = [...this.holds, ...this.calls].filter((other) => other.process === process);
    if (others.some((other) => other.names.some((name) => names.includes(name)))) return;
    this.verdict.violated('OWN', `${process.name} is refused ${names.join(' and ')} by ${owner}, its own`);
  }

  /** After each turn of a process. `eager`: also after the trust has ended, which makes the library read the clock. */
  afterTurn(process: SimulatedProcess, eager: boolean): void {
    const holds: Hold[] = [];
    for (const hold of this.holds) if (hold.process === process && !hold.over) holds.push(hold);
    if (holds.length > 0) process.observe(() => this.lookAt(holds, process, eager));
  }

  private lookAt(holds: readonly Hold[], process: SimulatedProcess, eager: boolean): void {
    for (const hold of holds) {
      if (hold.over) continue;
      const until = hold.trusted.at(-1)?.to ?? 0;
      if (eager || process.time < until) this.look(hold);
      else if (hold.signalled && process.time > until + SLACK) this.checkSignalled(hold);
    }
  }

  died(process: SimulatedProcess): void {
    for (const hold of this.holds) if (hold.process === process) this.left(hold, 'dies with');
    for (const call of this.calls) if (call.process === process) this.calls.delete(call);
  }

  /** What a process trusts, the store has under its ticket. */
  checkOwned(): void {
    const { now } = this.world;
    for (const hold of this.holds) {
      const trust = hold.trusted.findLast(({ from, to }) => from <= now && now < to);
      if (trust) this.checkOwner(hold, trust);
    }
  }

  private checkOwner(hold: Hold, { to }: Trust): void {
    const { now } = this.world;
    if (hold.toldOfOwner) return;
    const name = hold.names.find((each) => !this.server.hasLock(each, hold.owner, { anyOf: hold.names.length > 1 }));
    if (name === undefined || this.wasLost(name, (hold.trusted[0]?.from ?? now) - hold.ttl)) return;
    hold.toldOfOwner = true;
    const ms = (to - now).toFixed(1);
    this.verdict.violated('OWNED', `${told(hold)} trusts ${name} for another ${ms} ms, which the store has not`);
  }

  /** Once its signal has fired, a loss is final. */
  checkFinal(process: SimulatedProcess, lock: Lock): void {
    if (process.dead || process.time > this.world.now || !process.observe(() => lock.held)) return;
    this.verdict.violated('FINAL', `${process.name} trusts ${lock.keys.join(' and ')} again, whose signal has fired`);
  }

  private wasLost(name: string, since: number): boolean {
    const lost = [undefined, `lock:{${name}}`];
    return this.server.losses.some(({ time, key }) => time >= since && lost.includes(key));
  }

  /** A call with a limit must have ended soon after it, as its process could run. */
  checkCalls(commandTimeout: number): void {
    const { now } = this.world;
    for (const call of this.calls) {
      const { process, names, wait, since, stoodStill } = call;
      if (process.pausedUntil > now - SLACK) continue;
      if (now - since <= wait + commandTimeout + process.stoodStill - stoodStill + SLACK) continue;
      this.calls.delete(call);
      const waited = (now - since).toFixed(0);
      this.verdict.violated('LIMIT', `${process.name} waits ${waited} ms for ${names.join(' and ')}, limit ${wait}`);
    }
  }

  /** Something keeps Node.js running while a call waits: the library has a timer for that. */
  checkAwake(): void {
    if (this.calls.size === 0 || globalThis.process.getActiveResourcesInfo().includes('Timeout')) return;
    if (this.toldOfEnd) return;
    this.toldOfEnd = true;
    this.verdict.violated('AWAKE', 'nothing keeps a process running whose call waits');
  }

  /** Without faults, or after `allowance` ms for them, a name is not free for long while somebody waits for it. */
  checkUsed(names: readonly string[], allowance = 0): void {
    const { now } = this.world;
    const calls = [...this.calls];
    for (const name of names) {
      const waits = calls.some((call) => call.names.length === 1 && call.names[0] === name && now - call.since > 20);
      // A call for several names keeps the first while it waits for the next.
      const several = calls.filter((call) => call.names.length > 1);
      const held = [...this.holds, ...several].some((each) => each.names.includes(name));
      const since = this.freeSince.get(name);
      if (held || !waits) this.freeSince.delete(name);
      else if (since === undefined) this.freeSince.set(name, now);
      else if (now - since > LONGEST_FREE + allowance) {
        this.verdict.violated('FREE', `${name} is free since ${since.toFixed(0)} although somebody waits`);
        this.freeSince.set(name, Infinity);
      }
    }
  }

  checkEnded(): void {
    for (const { process, names, wait, since } of this.calls) {
      const what = `${process.name} still waits for ${names.join(' and ')} since ${since.toFixed(0)}, limit ${wait}`;
      this.verdict.violated('ENDS', what);
    }
  }

  /** A lock that nobody wants, or a waiter that sends heartbeats although nobody waits. */
  checkNothingLives(): void {
    for (const [key, , value, pttl] of this.server.model.dump()) {
      if (/^lock:\{[ab]\}$/.test(key)) this.verdict.violated('LEFT', `${key} = ${String(value)}, PTTL ${pttl}`);
      if (!/^lock:\{[ab]\}:waiters$/.test(key)) continue;
      for (const [ticket, data] of value as [string, string][]) {
        if (parseInt(data, 10) > this.server.now) this.verdict.violated('LEFT', `${ticket} waits in ${key}: ${data}`);
      }
    }
  }

  /** Tickets that were given up without a connection leave with the next grant, or with the queue after 20 s. */
  checkNothingLeft(): void {
    for (const [key, , value, pttl] of this.server.model.dump()) {
      if (!/^lock:\{[^}]*\}(:queue|:waiters)?$/.test(key)) continue;
      this.verdict.violated('LEFT', `${key} = ${String(value)}, PTTL ${pttl}`);
    }
  }

  /** Notes until when the process trusts its lock, as `remaining()` answers now. */
  private look(hold: Hold): boolean {
    const { process, lock, names, trusted } = hold;
    const now = process.time;
    const remaining = process.observe(() => lock?.remaining() ?? 0);
    if (remaining > hold.ttl) {
      this.verdict.violated(
        'LEASE',
        `${process.name} trusts ${names.join(' and ')} for ${remaining.toFixed(0)} ms of ${hold.ttl}`,
      );
    }
    const last = trusted.at(-1);
    if (remaining <= 0) {
      if (last) last.to = Math.min(last.to, now);
      return false;
    }
    const to = now + remaining / process.rate;
    if (last && now <= last.to) {
      last.to = Math.max(last.to, to);
      return true;
    }
    const trust = { from: now, to };
    trusted.push(trust);
    const first = trusted.length === 1;
    // Its code may be ahead of the world: others may still do what comes before.
    if (now > this.world.now) this.world.at(now, () => this.checkTrusted(hold, trust, first));
    else this.checkTrusted(hold, trust, first);
    return true;
  }

  /** At the deadline, its signal must have fired. */
  private checkSignalled(hold: Hold): void {
    const { process, names } = hold;
    const until = hold.trusted.at(-1)?.to ?? 0;
    // A process that stood still at its deadline has not had the time to notice.
    if (process.pausedUntil > until || process.time > this.world.now) return;
    // A renewal that was answered at the deadline, which nobody looked at, may have given it more.
    if (this.look(hold)) return;
    const late = (process.time - until).toFixed(0);
    this.verdict.violated('LOSS', `${process.name} is not told ${late} ms after it lost ${names.join(' and ')}`);
    hold.signalled = false;
  }

  /** A span of trust begins at this moment. */
  private checkTrusted(hold: Hold, trust: Trust, first: boolean): void {
    const { now } = this.world;
    const until = trust.to;
    if (this.server.keepsAll && until > now) this.checkOwner(hold, trust);
    for (const other of this.holds) {
      if (other === hold || (other.reads && hold.reads) || until <= now) continue;
      const theirs = other.trusted.findLast(({ from, to }) => from <= now && now < to);
      const name = theirs && hold.names.find((each) => other.names.includes(each));
      if (name === undefined || this.wasForgotten(name, other, hold)) continue;
      const ms = (Math.min(theirs?.to ?? 0, until) - now).toFixed(1);
      this.verdict.violated('EXCLUSION', `${told(other)} and ${told(hold)} both trust ${name}, for ${ms} ms`);
    }
    if (first) this.checkToken(hold);
  }

  /** Whether the server lost the grant of the first of the two before it gave the second. */
  private wasForgotten(name: string, a: Hold, b: Hold): boolean {
    const [from, to] = [a, b].map(({ trusted }) => trusted[0]?.from ?? 0) as [number, number];
    const { now } = this.world;
    return this.server.losses.some(
      ({ time, key }) =>
        // Where nothing else happens, each holder has soon asked whether it still holds.
        (!this.server.swarm.forgets || now < time + LEARNS) &&
        (key === undefined || key === `lock:{${name}}`) &&
        // The message of a grant may have been under way when the server forgot it, but for less than its lease.
        time >= Math.min(from, to) - this.server.swarm.ttl &&
        time <= Math.max(from, to),
    );
  }

  /**
   * A process may stand still between the grant and its entry, and then enters with a lock that it does not trust: what
   * counts is the order in which they trust it. Where the server loses the grant meanwhile, or before the process gives
   * it to its next caller, others come in between, and only the token tells the rows that this holder writes that it is
   * late. So they do while the answer of the grant is under way.
   */
  private checkToken(hold: Hold): void {
    for (const name of hold.names) {
      // A clock that goes back after the store lost its tokens repeats them, but none that the process has seen.
      const place = this.server.swarm.tokensFall > 0 ? `${name} at ${hold.process.name}` : name;
      const seen = this.tokens.get(place) ?? { any: 0, write: 0, at: 0 };
      const floor = hold.reads ? seen.write : seen.any;
      if (hold.token <= floor && !this.wasLostBeforeEntry(name, hold, seen.at))
        this.verdict.violated('TOKEN', `${told(hold)} of ${name} comes after token ${floor}`);
      seen.any = Math.max(seen.any, hold.token);
      if (!hold.reads) seen.write = Math.max(seen.write, hold.token);
      seen.at = this.world.now;
      this.tokens.set(place, seen);
    }
  }

  /**
   * Whether the server lost the name, before `others` entered, while the process stood still after its call, had the
   * name from an earlier call and has not learned of it, or was not yet told of the grant that was lost.
   */
  private wasLostBeforeEntry(name: string, { call, process, owner, token }: Hold, others: number): boolean {
    const { losses, swarm, keepsAll } = this.server;
    const since = this.askedAt.get(owner) ?? call.since;
    const late = since !== call.since || process.stoodStill !== call.stoodStill;
    return losses.some(
      ({ time, key, micros }) =>
        // Where the answer of the grant was under way instead, its token is older than the loss.
        (late || (keepsAll && token < micros)) &&
        (!swarm.forgets || this.world.now < time + LEARNS) &&
        time >= since &&
        time <= others &&
        (key === undefined || key === `lock:{${name}}`),
    );
  }
}

function told({ process, reads, token }: Hold): string {
  return `${process.name} (${reads ? 'reads' : 'writes'}, token ${token})`;
}
