import { prepared } from '../contention.mjs';
import { peerModules } from '../peers/connecting.mjs';

/** Connects a peer of a store; answers what runs the callers of this process. */
export async function prepare({ store, peer, server, directory, ...load }) {
  const { peers } = await import(`./${store}.mjs`);
  return prepared(await peers[peer]({ server, modules: peerModules(directory) }), load);
}
