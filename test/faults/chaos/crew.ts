import { Child } from '../../support/child.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import type { EvidenceAddress } from './evidence.js';
import { BOUNDS, SETTINGS } from './settings.js';
import type { Backend } from './stores.js';

/** The options of the contenders. */
export interface Work {
  readonly seed: number;
  /** Whose locks they take. */
  readonly peer: Peer;
  /** Where our locks are kept. */
  readonly backend: Backend;
  /** Whether a lock of theirs may end before they can know. */
  readonly abrupt: boolean;
  /** Where the packages of a peer are. */
  readonly modules: string | undefined;
  /** One hold in this number is long enough to be renewed. */
  readonly longHolds: number;
  /** How many of 100 holds read. */
  readonly reads: number;
}

export type Peer = 'ours' | 'redlock';

interface Member {
  readonly id: number;
  child: Child;
  /** Whether it may end now. */
  dismissed: boolean;
  readonly ready: Promise<unknown>;
}

/** The processes that contend. One that was killed is replaced. */
export class Crew {
  private readonly members: Member[] = [];
  private recruits = 0;

  private constructor(
    private readonly work: Work,
    /** For each place the ports of the store's servers. */
    private readonly ports: readonly (readonly number[])[],
    /** Every other process reaches each server through one of these. */
    readonly proxies: readonly FaultProxy[],
    private readonly evidence: EvidenceAddress,
    private readonly note: (what: string) => void,
  ) {}

  static async gather(
    work: Work,
    storePorts: readonly number[],
    evidence: EvidenceAddress,
    note: (what: string) => void,
  ): Promise<Crew> {
    const proxies: FaultProxy[] = [];
    const ports: (readonly number[])[] = [];
    for (let place = 0; place < SETTINGS.children; place++) {
      if (place % 2 === 1) {
        ports.push(storePorts);
        continue;
      }
      const ofPlace = await Promise.all(storePorts.map((port) => FaultProxy.start(port)));
      proxies.push(...ofPlace);
      ports.push(ofPlace.map(({ port }) => port));
    }
    const crew = new Crew(work, ports, proxies, evidence, note);
    for (const place of ports.keys()) crew.members[place] = crew.recruit(place);
    await crew.complete();
    return crew;
  }

  /** Waits until every process takes part. */
  async complete(): Promise<void> {
    await Promise.all(this.members.map(({ ready }) => ready));
  }

  /** The place of a process that is still there. */
  placeOf(id: number): number | undefined {
    const place = this.members.findIndex((member) => member.id === id);
    return place === -1 ? undefined : place;
  }

  async kill(place: number): Promise<void> {
    const member = this.at(place);
    member.dismissed = true;
    await member.child.kill();
    if (this.members[place] === member) this.members[place] = this.recruit(place);
  }

  stop(place: number): void {
    this.at(place).child.signal('SIGSTOP');
  }

  resume(place: number): void {
    this.at(place).child.signal('SIGCONT');
  }

  /** Has every caller finish what it is at. */
  async drain(): Promise<void> {
    for (const { child } of this.members) child.signal('SIGTERM');
    await Promise.all(this.members.map(({ child }) => child.says('drained', BOUNDS.wait)));
  }

  /** Has every process close its application and end by itself. */
  async dismiss(): Promise<void> {
    await Promise.all(
      this.members.map(async (member) => {
        member.dismissed = true;
        member.child.signal('SIGTERM');
        const left = await member.child.says<unknown[]>('closed', BOUNDS.process);
        if (left.some((state) => state !== null)) this.note(`held after the end: ${JSON.stringify(left)}`);
        const code = await within(BOUNDS.process, member.child.exited);
        if (code !== 0) this.note(`a process ended with ${code} after it had closed its application`);
      }),
    );
  }

  async disband(): Promise<void> {
    for (const member of this.members) member.dismissed = true;
    await Promise.all(this.members.map(({ child }) => child.kill()));
    await Promise.all(this.proxies.map((proxy) => proxy.stop()));
  }

  private at(place: number): Member {
    return this.members[place] as Member;
  }

  private recruit(place: number): Member {
    const { names, callers, ttl, wait } = SETTINGS;
    const id = ++this.recruits;
    const task = {
      ...this.work,
      ports: this.ports[place],
      id,
      seed: this.work.seed * 1_000_003 + id,
      names,
      callers,
      ttl,
      wait,
      evidence: this.evidence,
    };
    const child = Child.start('contender.mjs', [String(this.ports[place]?.[0]), JSON.stringify(task)]);
    const ready = child.says('ready', BOUNDS.process);
    // Reported by the code that waits for it, if any.
    ready.catch(() => {});
    const member = { id, child, dismissed: false, ready };
    void child.exited.then((code) => {
      if (!member.dismissed) this.note(`a process ended by itself, with ${code}: ${child.output}`);
    });
    return member;
  }
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T | 'nothing'> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'nothing'>((resolve) => (timer = setTimeout(resolve, ms, 'nothing')));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
