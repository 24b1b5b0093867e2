const HOST = '127.0.0.1';

/** The module options of a contender for each store, from the ports of its servers. */
const OPTIONS = {
  redis: async () => ({}),
  redlock: async (ports) => {
    const { redlock } = await import('nest-redis-lock/redlock');
    const nodes = ports.map((port) => ({ host: HOST, port }));
    return onBackend(redlock(nodes, { restartDelay: '2s' }));
  },
  postgres: async ([port]) => {
    const { leaseTable } = await import('nest-redis-lock/postgres');
    return onBackend(leaseTable(postgresAt(port)));
  },
  'postgres-advisory': async ([port]) => {
    const { advisory } = await import('nest-redis-lock/postgres');
    return onBackend(advisory(postgresAt(port)));
  },
  mysql: async ([port]) => {
    const { leaseTable } = await import('nest-redis-lock/mysql');
    return onBackend(leaseTable(mysqlAt(port)));
  },
  'mysql-get-lock': async ([port]) => {
    const { getLock } = await import('nest-redis-lock/mysql');
    return onBackend(getLock(mysqlAt(port)));
  },
  etcd: async ([port]) => {
    const { etcd } = await import('nest-redis-lock/etcd');
    return onBackend(etcd({ endpoints: `http://${HOST}:${port}`, ttl: '2s' }));
  },
  zookeeper: async ([port]) => {
    const { zookeeper } = await import('nest-redis-lock/zookeeper');
    return onBackend(zookeeper({ servers: `${HOST}:${port}`, sessionTimeout: '1500ms' }));
  },
};

export function optionsFor(backend, ports) {
  return OPTIONS[backend](ports);
}

const onBackend = (backend) => ({ redis: undefined, backend, cache: false });
const postgresAt = (port) => `postgres://postgres@${HOST}:${port}/postgres`;
const mysqlAt = (port) => `mysql://root@${HOST}:${port}/test`;
