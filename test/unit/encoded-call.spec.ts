import { jest } from '@jest/globals';
import { EncodedCall } from '../../lib/backends/redis/scripting/encoded-call.js';

it('keeps an error of those who wait for the reply out of the client that reads it', () => {
  const later = jest.spyOn(globalThis, 'queueMicrotask').mockImplementation(() => {});
  try {
    const failure = new Error('of a listener');
    const settle = () => {
      throw failure;
    };
    const call = new EncodedCall({ lua: 'return 1', sha1: 'e0e1f9fabfc9d4800c877a703b823ac0578ff8db' }, [], []);
    const command = call.command({ settle, fail: () => {} });
    expect(() => command.resolve(Buffer.from('reply'))).not.toThrow();
    expect(later.mock.calls).toHaveLength(1);
    expect(later.mock.calls[0]?.[0]).toThrow(failure);
  } finally {
    later.mockRestore();
  }
});
