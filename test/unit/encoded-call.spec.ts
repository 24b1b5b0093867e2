import { jest } from '@jest/globals';
import { Command } from 'ioredis';
import { EncodedCall } from '../../lib/backends/redis/connection/encoded-call.js';
import { redisScript } from '../../lib/backends/redis/connection/redis-script.js';

const SCRIPT = redisScript('return 1');
const IGNORED = { settle: () => {}, fail: () => {} };

it.each(['name', 'Straße', '名前', '🔒'])('encodes %s as the client does', (name) => {
  const encoded = new EncodedCall(SCRIPT, [`{${name}}`, 'key'], [name, 1.5, 1_760_000_000_000_128]).command(IGNORED);
  const usual = new Command('evalsha', [SCRIPT.sha1, 2, `{${name}}`, 'key', name, 1.5, 1_760_000_000_000_128]);
  expect(encoded.toWritable({})).toBe(usual.toWritable({}));
});

it('encodes the arguments for a call that is alone', () => {
  const encoded = new EncodedCall(SCRIPT, ['key'], ['ticket', 1], ['ticket']).command(IGNORED);
  expect(encoded.toWritable({})).toBe(new Command('evalsha', [SCRIPT.sha1, 1, 'key', 'ticket']).toWritable({}));
});

it('keeps an error of those who wait for the reply out of the client that reads it', () => {
  const later = jest.spyOn(globalThis, 'queueMicrotask').mockImplementation(() => {});
  try {
    const failure = new Error('of a listener');
    const settle = () => {
      throw failure;
    };
    const call = new EncodedCall(SCRIPT, [], []);
    const command = call.command({ settle, fail: () => {} });
    expect(() => command.resolve(Buffer.from('reply'))).not.toThrow();
    expect(later.mock.calls).toHaveLength(1);
    expect(later.mock.calls[0]?.[0]).toThrow(failure);
  } finally {
    later.mockRestore();
  }
});
