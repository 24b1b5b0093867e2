import { jest } from '@jest/globals';
import { Complaints } from '../../lib/calls/warning-limiter.js';
import { RecordingLogger } from '../support/recording-logger.js';

let logger: RecordingLogger;
let complaints: Complaints;
beforeEach(() => {
  jest.useFakeTimers();
  logger = new RecordingLogger();
  complaints = new Complaints(logger);
});
afterEach(() => {
  jest.useRealTimers();
});
const lines = () => logger.lines.map(({ text }) => text);

it('writes one line of a kind, and later how many more there were', () => {
  for (const key of ['a', 'b', 'c']) complaints.warn(`The refresh of "${key}" failed`);
  expect(lines()).toEqual(['The refresh of "a" failed']);
  jest.advanceTimersByTime(10_001);
  complaints.warn('The refresh of "d" failed');
  complaints.warn('The refresh of "e" failed');
  jest.advanceTimersByTime(10_001);
  complaints.warn('The refresh of "f" failed');
  expect(lines().slice(1)).toEqual([
    'The refresh of "d" failed (and 2 such warnings more)',
    'The refresh of "f" failed (and 1 such warnings more)',
  ]);
});

it('does not keep back what is of another kind', () => {
  complaints.warn('The refresh of "a" failed');
  complaints.warn('Redis does not answer: the cache does without it until it does');
  expect(lines()).toHaveLength(2);
});
