// Locks of one name or two, to read and to write: code as a user would write it.

import type { Lock } from '../../../lib/lock/hold/lock.js';
import type { LockOptions } from '../../../lib/lock/options/lock-options.js';
import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { LockRules } from './lock-rules.js';
import { sleep, type Workload } from './workload.js';

/** How much longer (ms) a name may be free where a client sends again what it has sent, on another connection. */
const LONGEST_RECONNECT = 300;

class GivenUp extends Error {
  override name = 'GivenUp';
}

export class Locks implements Workload {
  private readonly rules: LockRules;
  /** Whether all calls have ended. */
  private ended = false;

  constructor(private readonly schedule: Schedule) {
    const { world, server, verdict, swarm } = schedule;
    this.rules = new LockRules(world, server, verdict);
    world.every(500, () => this.rules.checkCalls(swarm.commandTimeout));
    world.every(2_000, () => this.rules.checkAwake());
    // Who owns what is read from the Redis of the schedule: other stores have that elsewhere.
    world.every(20, () => {
      if (!server.keepsAll || this.ended) return false;
      this.rules.checkOwned();
      if (swarm.deaths + swarm.restarts > 0) this.rules.order.checkHeirs(swarm.names);
      return true;
    });
    // A process that blocks its event loop takes nothing meanwhile.
    const late = swarm.lateOf !== '';
    if ((swarm.faultless || late) && swarm.blocks === 0) {
      world.every(20, () => {
        if (world.now > 1_500) this.rules.checkUsed(swarm.names, late ? LONGEST_RECONNECT : 0);
        return !this.ended;
      });
    }
  }

  get entries(): number {
    return this.rules.entries;
  }

  afterTurn(process: SimulatedProcess): void {
    this.rules.afterTurn(process, this.schedule.swarm.eager > 0);
  }

  died(process: SimulatedProcess): void {
    this.rules.died(process);
  }

  checkEnded(): void {
    this.ended = true;
    this.rules.checkEnded();
  }

  checkQuiet(): void {
    this.rules.checkNothingLives();
  }

  checkClosed(): void {
    this.rules.checkNothingLeft();
  }

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { rules } = this;
    const { swarm, verdict, world } = this.schedule;
    const names = random.chance(swarm.several) ? ['a', 'b'] : [random.pick(swarm.names)];
    const reads = random.chance(swarm.reads);
    const overstays = random.chance(swarm.overstays);
    const wait = random.pick([0, 700, 5_000, Infinity, Infinity]);
    const fifo = random.chance(swarm.fifo) && !reads && names.length === 1;
    const lingers = !reads && !fifo && names.length === 1 && random.chance(swarm.lingers);
    const background = random.chance(swarm.background);
    const options: LockOptions = {
      ...(lingers && { linger: swarm.lingerTime }),
      release: background ? 'background' : 'confirmed',
      mode: reads ? 'read' : 'write',
      ttl: swarm.ttl,
      wait,
      renew: !overstays && random.chance(0.8),
      ...(fifo && { order: 'fifo' }),
    };
    if (random.chance(swarm.givesUp)) {
      const controller = new AbortController();
      options.signal = controller.signal;
      setTimeout(() => controller.abort(new GivenUp()), random.exponential(200));
    }
    const call = rules.asked(process, names, wait);
    let lock: Lock;
    try {
      lock = await services.locks.acquire(names, options);
    } catch (error) {
      const { name, message } = error as Error;
      rules.ended(call, `is refused (${name})`);
      if (name === 'LockLostError')
        verdict.violated('REFUSAL', `acquire of ${names.join(' and ')} rejects: ${message}`);
      else if (!/^(Lock(Timeout|Backend)Error|GivenUp)$/.test(name))
        verdict.violated('ERROR', (error as Error).stack ?? message);
      const owner = /held by (\S+) for/.exec(message)?.[1];
      if (owner !== undefined && swarm.faultless) rules.checkRefusal(call, owner);
      return;
    }
    rules.ended(call, 'is granted');
    const hold = rules.entered(call, reads, swarm.ttl, lock);
    // Node.js keeps a signal made of several for as long as somebody listens, and so the whole world.
    let endListening = () => {};
    if (random.chance(0.7)) {
      const { signal } = lock;
      if (signal.aborted) rules.left(hold, 'had lost');
      else {
        hold.signalled = true;
        const lost = () => {
          rules.left(hold, 'loses');
          for (const ms of [20, 500, 2_000]) world.at(process.time + ms, () => rules.checkFinal(process, lock));
        };
        signal.addEventListener('abort', lost, { once: true });
        endListening = () => signal.removeEventListener('abort', lost);
      }
    }
    if (options.renew && random.chance(swarm.blocks)) await this.block(process, lock);
    if (overstays) await sleep(swarm.ttl * 1.2);
    else if (!random.chance(swarm.atOnce)) await sleep(random.exponential(swarm.holdTime));
    rules.left(hold, 'releases');
    if (lingers || background) rules.gaveBack(hold, lock.owner);
    await lock.release().catch((error: Error) => {
      const kept = swarm.faultless && swarm.blocks === 0 && options.renew === true;
      if (kept) verdict.violated('KEPT', `${process.name} has lost ${names.join(' and ')}: ${error.message}`);
      if (error.name !== 'LockLostError') verdict.violated('ERROR', error.stack ?? error.message);
    });
    endListening();
  }

  /**
   * A body that blocks its event loop from its first line has more than half of its lease, also where it had to wait
   * for it: the renewal of a shorter one is on its way.
   */
  private async block(process: SimulatedProcess, lock: Lock): Promise<void> {
    const { swarm, verdict } = this.schedule;
    if (!lock.held) return;
    const begun = this.schedule.world.now;
    process.block(0.55 * swarm.ttl);
    await sleep(5);
    // Another body of the process may have blocked it as well.
    const blocked = this.schedule.world.now - begun;
    if (swarm.faultless && blocked < 0.6 * swarm.ttl && !lock.held) {
      verdict.violated(
        'BLOCKED',
        `${process.name} has lost ${lock.keys.join(' and ')} within its lease of ${swarm.ttl} ms`,
      );
    }
  }
}
