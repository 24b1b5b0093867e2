/**
 * Which folder may import which, types included. Arrows point down:
 *
 *   decorators -> wiring | http -> primitives -> lock | cache -> calls -> contracts -> ground (errors, options, keys, timing, events)
 *   backends -> contracts -> ground
 *   admin -> lock | cache -> calls -> contracts -> ground
 *   observability -> lock | cache -> calls -> contracts -> ground (only the module imports observability)
 *
 * Only the module (lib/redis-lock.*.ts) knows both the services and the backends.
 */
const GROUND = '^lib/(errors|options|keys|timing|events)/';
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
const PRIMITIVES = '^lib/primitives/';
const CALLS = '^lib/calls/';
const CONTRACTS = '^lib/contracts/';
/** Parts of several backends that know no store. */
const SHARED_BY_BACKENDS = '^lib/backends/((batch|failures|listeners|sweeper)\\.ts$|sessions/)';
const WIRING = '^lib/wiring/';
const HTTP = '^lib/http/';

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    {
      name: 'no-circular',
      severity: 'error',
      comment: 'By value. Types may point both ways inside one folder; between folders structure.spec refuses it',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'no-orphans',
      severity: 'error',
      comment: 'A module that nothing imports, and that imports nothing, is dead code',
      from: { path: '^(lib|sample-app)/', pathNot: '\\.d\\.ts$', orphan: true },
      to: {},
    },
    {
      name: 'no-unresolvable',
      severity: 'error',
      from: { path: '^(lib|sample-app)/' },
      to: { couldNotResolve: true },
    },
    layer('ground', GROUND, []),
    layer('contracts', CONTRACTS, [GROUND]),
    layer('calls', CALLS, [CONTRACTS, GROUND]),
    layer('lock', LOCK, [CALLS, CONTRACTS, GROUND]),
    layer('cache', CACHE, [CALLS, CONTRACTS, GROUND]),
    layer('primitives', PRIMITIVES, [LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('wiring', WIRING, [PRIMITIVES, LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('http', HTTP, [WIRING, PRIMITIVES, LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('decorators', '^lib/decorators/', [WIRING, HTTP, PRIMITIVES, LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('observability', '^lib/observability/', [LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    {
      name: 'observability-only-listens',
      severity: 'error',
      comment: 'What is observed knows no observer; the module provides them',
      from: { path: '^lib/', pathNot: ['^lib/(index\\.ts$|observability/)', MODULE] },
      to: { path: '^lib/observability/' },
    },
    layer('admin', '^lib/admin/', [LOCK, CACHE, CALLS, CONTRACTS, GROUND]),
    layer('backends', '^lib/backends/', [CONTRACTS, GROUND]),
    {
      name: 'ioredis-in-its-backend',
      severity: 'error',
      comment:
        'Locks and cache know no client library; the option types name the clients that the module takes; the command ' +
        'line opens clients of a Cluster',
      from: { path: '^lib/', pathNot: '^lib/(backends/redis/|cli/|options/redis-connection\\.ts$)' },
      to: { path: '^node_modules/ioredis/' },
    },
    {
      name: 'ioredis-at-first-use',
      severity: 'error',
      comment: 'An application that makes no Redis connection neither loads nor installs ioredis',
      from: { path: '^lib/', pathNot: '^lib/backends/redis/connection/ioredis\\.ts$' },
      to: { path: '^node_modules/ioredis/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'backends-stand-alone',
      severity: 'error',
      comment:
        'No backend imports another one; redlock consists of several Redis, and what serves several has its folder',
      from: { path: '^lib/backends/([^/]+)/', pathNot: '^lib/backends/redlock/' },
      to: { path: '^lib/backends/', pathNot: ['^lib/backends/$1/', SHARED_BY_BACKENDS] },
    },
    {
      name: 'redlock-consists-of-redis',
      severity: 'error',
      from: { path: '^lib/backends/redlock/' },
      to: { path: '^lib/backends/', pathNot: ['^lib/backends/(redlock|redis)/', SHARED_BY_BACKENDS] },
    },
    {
      name: 'module-at-the-top',
      severity: 'error',
      comment: 'Only the public API, the testing module and the command line import the module',
      from: { path: '^lib/', pathNot: ['^lib/(index|(testing|cli)/.*)\\.ts$', MODULE] },
      to: { path: MODULE },
    },
    {
      name: 'command-line-is-a-program',
      severity: 'error',
      comment: 'The library loads no code of the command line, nor the packages that only it needs',
      from: { path: '^lib/', pathNot: '^lib/cli/' },
      to: { path: ['^lib/cli/', '^node_modules/(commander|cli-table3)/'] },
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
    {
      name: 'shop-stands-alone',
      severity: 'error',
      comment: 'The shop is what a reader copies; it knows neither its demo nor the servers of demo and tests',
      from: { path: '^sample-app/src/' },
      to: { path: '^sample-app/(?!src/)' },
    },
    {
      name: 'demo-is-a-client-of-the-shop',
      severity: 'error',
      comment: 'The demo speaks to the shop over HTTP, and by the environment variables that it starts it with',
      from: { path: '^sample-app/demo/' },
      to: { path: '^sample-app/src/' },
    },
    {
      name: 'servers-stand-alone',
      severity: 'error',
      comment: 'Demo and tests share them',
      from: { path: '^sample-app/servers/' },
      to: { path: '^sample-app/(?!servers/)' },
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
