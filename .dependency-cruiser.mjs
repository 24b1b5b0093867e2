/**
 * Which folder may import which, types included. Arrows point down:
 *
 *   decorators -> interceptors -> lock | cache -> calls -> contracts -> ground (errors, options, keys, timing)
 *   backends -> contracts -> ground
 *
 * Only the module (lib/redis-lock.*.ts) knows both the services and the backends.
 */
const GROUND = '^lib/(errors|options|keys|timing)/';
const MODULE = '^lib/redis-lock\\.';
const PACKAGES = '^node_modules/|^node:';

/** `from` may import itself, the folders of `to`, and packages. */
function layer(name, from, to) {
  return {
    name: `${name}-imports-downwards`,
    severity: 'error',
    comment: `lib/${name} may import ${[name, ...to.map((each) => each.replace(/[\^()/]/g, ''))].join(', ')} only`,
    from: { path: from },
    to: { path: '^lib/', pathNot: [from, ...to] },
  };
}

const LOCK = '^lib/lock/';
const CACHE = '^lib/cache/';
const CALLS = '^lib/calls/';
const CONTRACTS = '^lib/contracts/';
const INTERCEPTORS = '^lib/interceptors/';

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-orphans',
      severity: 'error',
      comment: 'A module that nothing imports, and that imports nothing, is dead code',
      from: { path: '^(lib|sample-app/src)/', pathNot: '\\.d\\.ts$', orphan: true },
      to: {},
    },
    {
      name: 'no-unresolvable',
      severity: 'error',
      from: { path: '^(lib|sample-app/src)/' },
      to: { couldNotResolve: true },
    },
    layer('ground', GROUND, []),
    layer('contracts', CONTRACTS, [GROUND]),
    layer('calls', CALLS, [CONTRACTS, GROUND]),
    layer('lock', LOCK, [CALLS, CONTRACTS, GROUND]),
    layer('cache', CACHE, [CALLS, CONTRACTS, GROUND]),
    layer('interceptors', INTERCEPTORS, [LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('decorators', '^lib/decorators/', [INTERCEPTORS, LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('backends', '^lib/backends/', [CONTRACTS, GROUND]),
    {
      name: 'ioredis-in-its-backend',
      severity: 'error',
      comment: 'Locks and cache know no client library; the option types name the clients that the module takes',
      from: { path: '^lib/', pathNot: '^lib/(backends/redis/|options/redis-connection\\.ts$)' },
      to: { path: '^node_modules/ioredis/' },
    },
    {
      name: 'backends-stand-alone',
      severity: 'error',
      comment: 'No backend imports another one',
      from: { path: '^lib/backends/([^/]+)/' },
      to: { path: '^lib/backends/', pathNot: '^lib/backends/$1/' },
    },
    {
      name: 'module-at-the-top',
      severity: 'error',
      comment: 'Only the public API and the testing module import the module',
      from: { path: '^lib/', pathNot: ['^lib/(index|testing/.*)\\.ts$', MODULE] },
      to: { path: MODULE },
    },
    {
      name: 'index-is-for-users',
      severity: 'error',
      comment: 'lib imports the file that declares what it needs, not the public API',
      from: { path: '^lib/' },
      to: { path: '^lib/index\\.ts$' },
    },
    {
      name: 'lib-stands-alone',
      severity: 'error',
      from: { path: '^lib/' },
      to: { path: '^(test|sample-app)/' },
    },
    {
      name: 'sample-app-is-a-user',
      severity: 'error',
      comment: "The sample application imports 'nest-redis-lock', as any other does",
      from: { path: '^sample-app/' },
      to: { path: '^(lib|test)/', dependencyTypesNot: ['aliased'] },
    },
  ],
  options: {
    doNotFollow: { path: PACKAGES },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
    },
  },
};
