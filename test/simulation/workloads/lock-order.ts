// Who gets a lock: nobody is passed again and again, and nobody gets one who has ended.

import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';
import type { Verdict } from '../verdict.js';
import type { Call } from './lock-rules.js';

/** For how many ms, and how often, one process may enter while a call of another one waits. */
const LONGEST_RUN = 4_000;
const MOST_ENTRIES = 12;
/** Milliseconds after the end of a process from which on nothing is given to it. */
const ENDED = 250;

export class LockOrder {
  /** By the id in their tickets, those that have listened; and since when the server knows that they have ended. */
  private readonly processes = new Map<string, { readonly process: SimulatedProcess; endedAt: number | undefined }>();
  /** By name: the ticket that owns it. */
  private readonly owners = new Map<string, string>();
  private checkedAt = 0;

  constructor(
    private readonly server: Server,
    private readonly verdict: Verdict,
  ) {}

  /** No process enters again and again while a call of another one waits. */
  checkPassed(name: string, process: SimulatedProcess, calls: Iterable<Call>): void {
    const { faultless, deaf, unheard } = this.server.swarm;
    if (!faultless && !deaf && !unheard) return;
    for (const call of calls) {
      const { passedBy } = call;
      if (call.names.length > 1 || call.names[0] !== name) continue;
      if (call.process === process) {
        passedBy.clear();
        call.passedSince = process.time;
        continue;
      }
      const times = (passedBy.get(process) ?? 0) + 1;
      passedBy.set(process, times);
      const ms = process.time - call.passedSince;
      if (times <= MOST_ENTRIES || ms < LONGEST_RUN) continue;
      passedBy.clear();
      call.passedSince = Infinity;
      this.verdict.violated(
        'STARVED',
        `${call.process.name} waits for ${name}; ${process.name} has entered ${times} times in ${ms.toFixed(0)} ms`,
      );
    }
  }

  /** A name is not given to a process that has ended, as the server knows. A failover may bring an owner back. */
  checkHeirs(names: readonly string[]): void {
    const { server, processes, owners, checkedAt } = this;
    const { now } = server.world;
    const broughtBack = server.losses.some(({ time }) => time >= checkedAt);
    this.checkedAt = now;
    const connected = new Set<SimulatedProcess>();
    for (const { socket, channels } of server.links) {
      connected.add(socket.process);
      for (const channel of channels ?? []) {
        const [, id] = /^lock:process:([\da-f-]+)$/.exec(channel) ?? [];
        if (id !== undefined) processes.set(id, { process: socket.process, endedAt: undefined });
      }
    }
    for (const name of names) {
      const entry = server.model.data.get(`lock:{${name}}`);
      const owner = entry?.type === 'string' ? entry.value : '';
      const known = processes.get(owner.slice(0, owner.indexOf(':')));
      const since = known?.endedAt ?? Infinity;
      if (owner !== owners.get(name) && now > since + ENDED && !broughtBack)
        this.verdict.violated('HEIR', `${name} is given to ${known?.process.name}, which has ended`);
      owners.set(name, owner);
    }
    for (const each of processes.values()) if (each.process.dead && !connected.has(each.process)) each.endedAt ??= now;
  }
}
