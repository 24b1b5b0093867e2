// The five servers of Redlock in one world. One at a time may restart without its data.

import { Server } from '../server.js';
import type { World } from '../world.js';

const NODES = 5;
/** The restarts of a schedule are this far apart (ms), so that a restarted node grants again before the next. */
const RESTARTS = 6_000;

const quorums = new WeakMap<World, readonly Server[]>();

/** The server of the schedule and four more, whose connections have the faults of that one as well. */
export function quorumOf(server: Server): readonly Server[] {
  const { world, swarm } = server;
  const known = quorums.get(world);
  if (known) return known;
  const others = Array.from({ length: NODES - 1 }, (_, i) => {
    const node = new Server(world, swarm, server.lua, `redis ${i + 2}`, server.links);
    node.model.runId = String(i + 2).repeat(40);
    return node;
  });
  const nodes = [server, ...others];
  quorums.set(world, nodes);
  const random = world.stream('restarts of nodes');
  if (!swarm.faultless && random.chance(0.4)) {
    for (let at = random.between(1_000, 4_000); at < 12_000; at += RESTARTS) {
      world.at(at, () => restart(random.pick(nodes), random.uuid()));
    }
  }
  return nodes;
}

function restart({ world, model, links, now, name }: Server, id: string): void {
  world.note(name, 'restarts without its data');
  model.data.clear();
  model.scripts.clear();
  model.runId = id.replaceAll('-', '').padEnd(40, '0');
  model.startedAt = now;
  for (const link of links) if (link.server.name === name) link.cut({ answers: false, atOnce: true });
}
