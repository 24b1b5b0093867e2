import { firstLine } from '../first-line.mjs';
import { peerModules } from '../peers/peer-modules.mjs';
import * as absent from './absent/operations.mjs';
import * as avalanche from './avalanche/operations.mjs';
import * as coherence from './coherence/operations.mjs';
import * as outage from './outage/operations.mjs';
import { connectPeer } from './peers/catalogue.mjs';
import * as prefixDeletion from './prefix-deletion/operations.mjs';
import * as stampede from './stampede/operations.mjs';
import * as stored from './stored/operations.mjs';
import * as throughput from './throughput/operations.mjs';
import * as writeRace from './write-race/operations.mjs';

/** What a process with a cache can be asked: each is given the cache and settings, and answers figures. */
const OPERATIONS = {
  ...absent,
  ...avalanche,
  ...coherence,
  ...outage,
  ...prefixDeletion,
  ...stampede,
  ...stored,
  ...throughput,
  ...writeRace,
};

/** Connects the peer; answers what carries requests out. */
export async function prepare({ peer, port, directory }) {
  const uncaught = [];
  // They would end an application.
  for (const event of ['unhandledRejection', 'uncaughtException']) {
    process.on(event, (error) => uncaught.push(firstLine(error)));
  }
  const cache = await connectPeer(peer, { port, modules: peerModules(directory) });
  const operations = { ...OPERATIONS, uncaught: () => uncaught };
  return ({ operation, settings }) => operations[operation](cache, settings);
}
