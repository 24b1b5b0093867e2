import { connectIoredis } from '../clients.mjs';
import { LEASE } from '../patience.mjs';

const RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`;

/** The floor: what the wire costs, without waiting, fencing or renewal. */
export async function connect(settings) {
  const client = await connectIoredis(settings);
  client.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE });
  let last = 0;
  return async (key, body) => {
    const ticket = `${process.pid}:${++last}`;
    if ((await client.set(key, ticket, 'PX', LEASE, 'NX')) !== 'OK') throw new Error(`${key} is busy`);
    try {
      return await body();
    } finally {
      await client.releaseLock(key, ticket);
    }
  };
}
