import { jest } from '@jest/globals';
import { WarningLimiter } from '../../lib/calls/warning-limiter.js';
import { RecordingLogger } from '../support/recording-logger.js';

let logger: RecordingLogger;
let warnings: WarningLimiter;
beforeEach(() => {
  jest.useFakeTimers();
  logger = new RecordingLogger();
  warnings = new WarningLimiter(logger);
});
afterEach(() => {
  jest.useRealTimers();
});
const lines = () => logger.lines.map(({ text }) => text);

it('writes one line of a kind, and later how many more there were', () => {
  for (const key of ['a', 'b', 'c']) warnings.warn(`The refresh of "${key}" failed`);
  expect(lines()).toEqual(['The refresh of "a" failed']);
  jest.advanceTimersByTime(10_001);
  warnings.warn('The refresh of "d" failed');
  warnings.warn('The refresh of "e" failed');
  jest.advanceTimersByTime(10_001);
  warnings.warn('The refresh of "f" failed');
  expect(lines().slice(1)).toEqual([
    'The refresh of "d" failed (and 2 similar warnings)',
    'The refresh of "f" failed (and 1 similar warnings)',
  ]);
});

it('does not keep back what is of another kind', () => {
  warnings.warn('The refresh of "a" failed');
  warnings.warn('Redis does not answer: the cache does without it until it does');
  expect(lines()).toHaveLength(2);
});
