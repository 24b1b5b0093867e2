import { messageOf, stackOf, textOf } from '../../lib/errors/limited-log.js';
import { jest } from '@jest/globals';
import { LimitedLog } from '../../lib/errors/limited-log.js';
import { RecordingLogger } from '../support/recording-logger.js';

const MINUTE = 60_000;

let logger: RecordingLogger;
let log: LimitedLog;
beforeEach(() => {
  jest.useFakeTimers();
  logger = new RecordingLogger();
  log = new LimitedLog(logger);
});
afterEach(() => {
  jest.useRealTimers();
});
const lines = () => logger.lines.map(({ text }) => text);

it('writes one line for the same trouble a hundred times in a minute, and one with the count after it', () => {
  for (let time = 0; time < 100; time++) {
    log.warn(`The refresh of "key:${time}" failed`);
    jest.advanceTimersByTime(500);
  }
  expect(lines()).toEqual(['The refresh of "key:0" failed']);
  jest.advanceTimersByTime(10_000);
  expect(lines().slice(1)).toEqual([
    'The refresh of "key:99" failed (and 98 more of this kind, left out in the last minute)',
  ]);
});

it('goes on with one line a minute while the trouble lasts, and is quiet after it', () => {
  for (let second = 0; second < 180; second++) {
    log.error('Lock "order:7" lost');
    jest.advanceTimersByTime(1_000);
  }
  expect(lines()).toHaveLength(4);
  jest.advanceTimersByTime(10 * MINUTE);
  expect(lines()).toHaveLength(4);
  log.error('Lock "order:7" lost');
  expect(lines().slice(4)).toEqual(['Lock "order:7" lost']);
});

it('writes the second of two lines after the minute, without a count', () => {
  for (const key of ['a', 'b']) log.warn(`The refresh of "${key}" failed`);
  jest.advanceTimersByTime(MINUTE);
  expect(lines()).toEqual(['The refresh of "a" failed', 'The refresh of "b" failed']);
});

it.each([
  ['names', 'Renewal of "a" failed', 'Renewal of "b" failed'],
  ['numbers', 'no answer within 250 ms', 'no answer within 1,250.5 ms'],
  [
    'ids',
    'owner 0f0e0d0c-0b0a-4908-8706-050403020100:12 is gone',
    'owner 1f0e0d0c-0b0a-4908-8706-050403020100:345 is gone',
  ],
])('takes lines that differ in %s for one kind', (_what, one, other) => {
  log.warn(one);
  log.warn(other);
  expect(lines()).toEqual([one]);
});

it.each([
  ['text', 'The value of "a" is an instance of Order', 'The value of "a" is an instance of Price'],
  ['servers', 'Redis at 127.0.0.1:6379 does not answer', 'Redis at 127.0.0.1:6380 does not answer'],
])('does not withhold a line that differs in its %s', (_what, one, other) => {
  log.warn(one);
  log.warn(other);
  expect(lines()).toEqual([one, other]);
});

it('keeps the levels apart, and lets those below a warning pass', () => {
  log.warn('Something');
  log.error('Something');
  for (let time = 0; time < 3; time++) {
    log.log('Something');
    log.debug('Something');
  }
  expect(logger.lines).toHaveLength(2);
  expect(logger.details).toHaveLength(6);
});

it('tells lines apart by the kind that is given', () => {
  log.error('Lock "a" lost', 'a');
  log.error('Lock "b" lost', 'b');
  log.error('Lock "a" lost', 'a');
  log.warn('Renewal of "a" failed', 'a');
  log.warn('Renewal of "b" failed', 'b');
  expect(lines()).toEqual(['Lock "a" lost', 'Lock "b" lost', 'Renewal of "a" failed', 'Renewal of "b" failed']);
});

it('counts further kinds of a level together once there are a hundred', () => {
  for (let kind = 0; kind < 1_000; kind++) log.error('Lost', String(kind));
  expect(lines()).toHaveLength(101);
  jest.advanceTimersByTime(MINUTE);
  expect(lines()).toHaveLength(102);
  expect(lines().at(-1)).toContain('and 898 more');
});

it('writes the counts when the application ends', () => {
  for (let time = 0; time < 3; time++) log.warn('The refresh failed');
  log.flush();
  expect(lines().slice(1)).toEqual(['The refresh failed (and 1 more of this kind, left out in the last minute)']);
  jest.advanceTimersByTime(10 * MINUTE);
  expect(lines()).toHaveLength(2);
});

describe('the text of what was thrown', () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  const throwing = Object.defineProperty(new Error('x'), 'message', {
    get() {
      throw new Error('no message');
    },
  });
  it.each([[Object.create(null)], [proxy], [throwing], [{ toString: 1 }], [undefined], [Symbol('s')]])(
    'is there, whatever it is (%#)',
    (thrown: unknown) => {
      for (const text of [textOf, messageOf, stackOf]) expect(typeof text(thrown)).toBe('string');
    },
  );
});
