import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** What each peer is, with what it is built on, as in `murlock 4.4.0 on redis 4.7.1`. */
export function peerVersions(peers, names, installation) {
  const versionOf = (peer) => (peer.adapter === 'ours' ? ownVersion() : describe(peer, installation));
  return Object.fromEntries(names.map((name) => [name, versionOf(peers[name])]));
}

function describe({ packages: [first, ...basis] }, installation) {
  if (first === undefined) return 'in memory';
  const exact = (package_) => `${package_} ${installation.versionOf(package_, first) ?? '(not installed)'}`;
  return [exact(first), ...basis.map(exact)].join(', ');
}

function ownVersion() {
  const packages = ['nest-redis-lock', 'ioredis', '@nestjs/core'];
  return packages.map((package_) => `${package_} ${require(`${package_}/package.json`).version}`).join(', ');
}
