// From the build, because jest does not transform this file's imports; `npm test` builds first.
import { requireRedisServerProgram } from '../../dist-sample/servers/redis-server.js';

/** Installs a Redis server, or says how to, before any test needs it. */
export default function setUp() {
  requireRedisServerProgram();
}
