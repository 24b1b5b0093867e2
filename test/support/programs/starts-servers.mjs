// Starts Redis and PostgreSQL, prints their process ids, and waits to be ended.
import { startPostgresServer } from '../../../dist-sample/servers/postgres-server.js';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';

const servers = await Promise.all([startRedisServer(), startPostgresServer()]);
console.log(`started ${JSON.stringify(servers.map(({ process }) => process.pid))}`);
setInterval(() => {}, 1_000);
