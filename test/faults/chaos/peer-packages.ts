import { PeerPackages } from '../../bench/peers/installation.mjs';
import type { Peer } from './crew.js';

/**
 * Those of the benchmark, so that both speak of the same versions. It is compiled to a folder of its own, two levels
 * deeper.
 */
const PACKAGES = new URL('../../../../test/bench/peers/packages.json', import.meta.url);

/** The folder of what a peer needs, installed outside of the repository if it is not. */
export async function packagesOf(peer: Peer): Promise<string | undefined> {
  if (peer === 'ours') return undefined;
  const packages = new PeerPackages(PACKAGES);
  const { directory, versionOf } = await packages.install(
    [{ packages: [peer] }],
    packages.defaultDirectory,
    new AbortController().signal,
  );
  if (versionOf(peer, peer) === undefined) throw new Error(`${peer} is not installed in ${directory}`);
  return directory;
}
