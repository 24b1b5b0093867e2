/** The entry points of the package with their modules in `lib`: `index` is the main one, the others are subpaths. */
export const ENTRIES = {
  index: 'index',
  backend: 'contracts/index',
  events: 'observability/index',
  testing: 'testing/index',
  memory: 'backends/memory/index',
  redlock: 'backends/redlock/index',
  postgres: 'backends/postgres/index',
  mysql: 'backends/mysql/index',
  etcd: 'backends/etcd/index',
  zookeeper: 'backends/zookeeper/index',
  prometheus: 'observability/prometheus/index',
  terminus: 'observability/terminus/index',
  opentelemetry: 'observability/opentelemetry/index',
  admin: 'admin/index',
};
