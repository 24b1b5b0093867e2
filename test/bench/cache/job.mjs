import { firstLine } from '../figures.mjs';
import { peerModules } from '../peers/connecting.mjs';
import { lookUpAbsent } from './absent.mjs';
import { readWhileTheyRunOut } from './avalanche.mjs';
import { invalidateOne, startWatching, stopWatching } from './coherence.mjs';
import { outageReport, startCalling, startInvalidating } from './outage.mjs';
import { connectPeer } from './peers/catalogue.mjs';
import { deleteByPrefix, setMany, startReading, stopReading } from './prefix-deletion.mjs';
import { countOld, fill, invalidate, storeOld } from './rows.mjs';
import { wantAtOnce } from './stampede.mjs';
import { coldMisses, hits, mixed } from './throughput.mjs';
import { beginRace, endRace, joinRace } from './write-race.mjs';

/** What a process with a cache can be asked: each is given the cache and settings, and answers figures. */
const OPERATIONS = {
  beginRace,
  coldMisses,
  countOld,
  deleteByPrefix,
  endRace,
  fill,
  hits,
  invalidate,
  invalidateOne,
  joinRace,
  lookUpAbsent,
  mixed,
  outageReport,
  readWhileTheyRunOut,
  setMany,
  startCalling,
  startInvalidating,
  startReading,
  startWatching,
  stopReading,
  stopWatching,
  storeOld,
  wantAtOnce,
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
