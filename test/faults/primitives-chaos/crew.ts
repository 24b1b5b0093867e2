import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../../support/child.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { BOUNDS } from '../chaos/settings.js';
import type { Evidence } from './evidence.js';

const PLACES = 4;

interface Member {
  readonly child: Child;
  /** Whether it may end now. */
  dismissed: boolean;
}

/** The processes that use a primitive. One that was killed is replaced. */
export class Crew {
  readonly places = PLACES;
  private readonly members: Member[] = [];
  private readonly proxies: FaultProxy[] = [];
  private recruits = 0;

  constructor(
    private readonly program: string,
    private readonly names: readonly string[],
    private readonly port: number,
    private readonly evidence: Evidence,
    private readonly seed: number,
  ) {}

  async gather(): Promise<void> {
    for (let place = 0; place < PLACES; place += 2) this.proxies.push(await FaultProxy.start(this.port));
    await Promise.all(Array.from({ length: PLACES }, (_, place) => this.recruit(place)));
  }

  async kill(place: number): Promise<void> {
    const member = this.at(place);
    member.dismissed = true;
    await member.child.kill();
    await this.recruit(place);
  }

  async stop(place: number, ms: number): Promise<void> {
    const { child } = this.at(place);
    child.signal('SIGSTOP');
    await sleep(ms);
    child.signal('SIGCONT');
  }

  /** Of this place or of its neighbour, because every other process reaches Redis directly. */
  proxyOf(place: number): FaultProxy {
    return this.proxies[Math.floor(place / 2)] as FaultProxy;
  }

  /** Has every call end, and every process by itself. */
  async dismiss(): Promise<void> {
    for (const member of this.members) {
      member.dismissed = true;
      member.child.signal('SIGTERM');
    }
    await Promise.all(
      this.members.map(async ({ child }) => {
        await child.says('closed', BOUNDS.process);
        const code = await Promise.race([child.exited, sleep(BOUNDS.process, 'not ended', { ref: false })]);
        if (code !== 0) await this.evidence.note(`a process: ${code}; it said: ${child.output}`);
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

  /** Every other process reaches Redis through a proxy. */
  private async recruit(place: number): Promise<void> {
    const id = ++this.recruits;
    const port = place % 2 === 0 ? this.proxyOf(place).port : this.port;
    const task = { id, seed: this.seed * 1_000_003 + id, names: this.names, evidence: this.evidence.address };
    const child = Child.start(`amid-faults/${this.program}`, [String(port), JSON.stringify(task)]);
    const member = { child, dismissed: false };
    this.members[place] = member;
    void child.exited.then(async (code) => {
      if (!member.dismissed) await this.evidence.note(`a process ended by itself, with ${code}: ${child.output}`);
    });
    await child.says('ready', BOUNDS.process);
  }
}
