// What happens to the processes, the connections and the server of a schedule, and when.

import type { Application, Schedule } from './schedule.js';
import type { Random } from './redis/random.js';

/** Plans each fault. Each has random numbers of its own, so that the others stay as they are when one is left out. */
export function planFaults(schedule: Schedule): void {
  const { world, without, until } = schedule;
  for (const [name, { count, happen }] of Object.entries(FAULTS)) {
    for (let i = 1; i <= Math.round(count(schedule)); i++) {
      const label = `${name} ${i}`;
      const random = world.stream(label);
      const at = random.between(100, until);
      if (without.has(label)) continue;
      schedule.parts.push(label);
      world.at(at, () => happen(schedule, random));
    }
  }
}

interface Fault {
  count(schedule: Schedule): number;
  happen(schedule: Schedule, random: Random): void;
}

const FAULTS: Record<string, Fault> = {
  pause: {
    count: ({ swarm }) => swarm.pauses,
    happen: (schedule, random) =>
      onOne(schedule, random, ({ process }) => process.pause(random.exponential(schedule.swarm.pauseTime))),
  },
  cut: {
    count: ({ swarm }) => swarm.cuts,
    happen: ({ server, swarm }, random) => {
      const links = [...server.links].filter(({ open }) => open);
      if (links.length > 0) random.pick(links).cut({ silent: random.chance(swarm.silent) });
    },
  },
  partition: {
    count: ({ swarm }) => swarm.partitions,
    happen: (schedule, random) =>
      onOne(schedule, random, ({ process }) => {
        const { world, server } = schedule;
        const ms = random.exponential(schedule.swarm.partitionTime);
        const silent = random.chance(0.5);
        process.network = { until: world.now + ms, silent };
        world.note(process.name, `is cut off for ${ms.toFixed(0)} ms`);
        for (const link of server.links) if (link.socket.process === process && link.open) link.cut({ silent });
      }),
  },
  congestion: {
    count: ({ swarm }) => swarm.congestions,
    happen: ({ server }, random) => {
      const messages = random.chance(0.6);
      const links = [...server.links].filter(({ open, listens }) => open && (!messages || listens));
      if (links.length > 0) random.pick(links).congest(random.pick([100, 1_000, 4_000]), random.exponential(3_000));
    },
  },
  'messages cut off': {
    count: ({ swarm }) => swarm.messageCuts,
    happen: (schedule, random) =>
      onOne(schedule, random, ({ process }) => {
        const { world, server, swarm } = schedule;
        const ms = random.exponential(swarm.messageCutTime);
        process.unheardUntil = world.now + ms;
        world.note(process.name, `gets no messages for ${ms.toFixed(0)} ms`);
        for (const link of server.links)
          if (link.socket.process === process && link.open && link.listens) link.cut({ atOnce: true });
      }),
  },
  death: {
    count: ({ swarm }) => swarm.deaths,
    happen: (schedule, random) => {
      if (alive(schedule).length > 1) onOne(schedule, random, (application) => kill(schedule, application, random));
    },
  },
  'restart of a process': {
    count: ({ swarm }) => swarm.restarts,
    happen: (schedule, random) =>
      onOne(schedule, random, (application) => {
        kill(schedule, application, random);
        schedule.start(`${application.process.name}'`, application.library);
      }),
  },
  'script flush': { count: ({ swarm }) => swarm.scriptFlushes, happen: ({ server }) => server.flushScripts() },
  'clock back': {
    count: ({ swarm }) => swarm.clockBack,
    happen: ({ server }, random) => server.setClockBack(random.exponential(300)),
  },
  'empty restart': { count: ({ swarm }) => swarm.emptied, happen: ({ server }, random) => server.restartEmpty(random) },
  failover: {
    count: ({ swarm }) => swarm.failovers,
    happen: ({ server }, random) => server.failOver(random.exponential(random.pick([5, 100, 1_000])), random),
  },
  'full memory': {
    count: ({ swarm }) => swarm.full,
    happen: ({ server, world, swarm }, random) => {
      server.model.full = true;
      world.note(server.name, 'has no memory left');
      world.at(world.now + random.exponential(swarm.fullTime), () => server.giveMemory());
    },
  },
  'read only': {
    count: ({ swarm }) => swarm.readOnly,
    happen: ({ server, world, swarm }, random) => {
      server.model.readOnly = true;
      world.note(server.name, 'refuses to write');
      world.at(world.now + random.exponential(swarm.fullTime), () => server.letWrite());
    },
  },
  refusal: {
    count: ({ swarm }) => swarm.refusals,
    happen: (schedule, random) => onOne(schedule, random, ({ process }) => schedule.server.refused.add(process)),
  },
  eviction: { count: ({ swarm }) => swarm.evictions, happen: ({ server }, random) => server.evict(random) },
};

function alive({ applications }: Schedule): Application[] {
  return applications.filter(({ process }) => !process.dead);
}

function onOne(schedule: Schedule, random: Random, happen: (application: Application) => void): void {
  const candidates = alive(schedule);
  if (candidates.length > 0) happen(random.pick(candidates));
}

function kill({ workloads, server }: Schedule, { process }: Application, random: Random): void {
  for (const workload of workloads) workload.died?.(process);
  process.die();
  for (const link of server.links) {
    if (link.socket.process === process) link.cut({ silent: random.chance(0.5) });
  }
}
