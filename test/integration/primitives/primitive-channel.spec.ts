import { Redis } from 'ioredis';
import { RedisPrimitiveChannel } from '../../../lib/backends/redis/primitives/redis-primitive-channel.js';
import { RedisLink } from '../../../lib/backends/redis/connection/redis-link.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { server, startRedis } from '../../support/one-redis.js';

startRedis();

it('delivers to a listener that came while the connection was being made', async () => {
  const link = new RedisLink(server.url, { name: 'redis', ConfigError: Error });
  const admin = new Redis(server.url);
  const heartbeats = new Gate();
  const command = link.scripts.command.bind(link.scripts);
  link.scripts.command = async (use) => {
    await heartbeats.opened;
    return command(use);
  };
  const channel = new RedisPrimitiveChannel(link, 'test:');
  const messages: string[] = [];
  const connected: string[] = [];
  const listener = (name: string) => ({
    onMessage: (text: string) => void messages.push(`${name} ${text}`),
    onConnected: () => void connected.push(name),
  });
  try {
    channel.listen('semaphore', 'one', listener('one'));
    await eventually(async () => ((await admin.call('PUBSUB', 'CHANNELS', 'test:one')) as string[]).length === 1);
    channel.listen('latch', 'two', listener('two'));
    heartbeats.open();
    await eventually(() => connected.includes('one') && connected.includes('two'));
    expect(await admin.publish('test:two', 'semaphore x')).toBe(1);
    expect(await admin.publish('test:two', 'latch y')).toBe(1);
    await eventually(() => messages.length > 0);
    expect(messages).toEqual(['two y']);
  } finally {
    channel.close();
    link.close();
    admin.disconnect();
  }
});
