// What caches cost and what they get wrong, ours and other libraries.
import { runBenchmark } from '../benchmark.mjs';
import { PeerPackages } from '../peers/installation.mjs';
import { PEERS } from './peers/catalogue.mjs';
import { SCENARIOS } from './scenarios.mjs';

await runBenchmark({
  command: 'npm run bench:cache',
  description:
    'Measures the cache of this library and its peers on the same work, in turn, on a Redis server of its own',
  peers: PEERS,
  packages: new PeerPackages(new URL('./peers/packages.json', import.meta.url)),
  scenarios: SCENARIOS,
});
