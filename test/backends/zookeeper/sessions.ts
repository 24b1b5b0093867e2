import { createClient } from 'node-zookeeper-client';
import type { ZooKeeperServer } from '../../support/servers/zookeeper-server.js';

/** The ids of the sessions that have ephemeral nodes. */
export async function sessionsWithNodes(server: ZooKeeperServer): Promise<bigint[]> {
  const [, ephemerals = ''] = (await server.ask('dump')).split('Sessions with Ephemerals');
  return [...ephemerals.matchAll(/^(0x[0-9a-f]+):/gm)].map(([, id]) => BigInt(id as string));
}

/**
 * Ends a session from outside, as Curator's tests do: connects to it with its id and password, which the server derives
 * from the id, and closes it. Its own client may move it back before: then again.
 */
export async function endSession(server: ZooKeeperServer, id: bigint): Promise<void> {
  const sessionId = Buffer.alloc(8);
  sessionId.writeBigUInt64BE(BigInt.asUintN(64, id));
  const options = { sessionTimeout: 4_000, sessionId, sessionPassword: passwordOf(id) };
  for (let ended = false; !ended;) {
    const client = createClient(server.connection, options);
    ended = await new Promise<boolean>((resolve) => {
      client.once('connected', () => client.close());
      client.once('expired', () => resolve(true));
      client.once('disconnected', () => resolve(false));
      client.connect();
    });
    client.close();
  }
}

/** What `new java.util.Random(id ^ 0xB3415C00).nextBytes(new byte[16])` answers. */
function passwordOf(id: bigint): Buffer {
  const mask = (1n << 48n) - 1n;
  let seed = (id ^ 0xb3415c00n ^ 0x5deece66dn) & mask;
  const password = Buffer.alloc(16);
  for (let offset = 0; offset < 16; offset += 4) {
    seed = (seed * 0x5deece66dn + 0xbn) & mask;
    password.writeUInt32LE(Number(BigInt.asUintN(32, seed >> 16n)), offset);
  }
  return password;
}
