// What locks cost, ours and those of other libraries.
import { runBenchmark } from './benchmark.mjs';
import { PEERS } from './peers/catalogue.mjs';
import { PeerPackages } from './peers/installation.mjs';
import { SCENARIOS } from './scenarios.mjs';

await runBenchmark({
  command: 'npm run bench',
  description:
    'Measures locks of this library and of its peers on the same work, in turn, on a Redis server of its own',
  peers: PEERS,
  packages: new PeerPackages(new URL('./peers/packages.json', import.meta.url)),
  scenarios: SCENARIOS,
});
