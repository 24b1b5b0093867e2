import { jest } from '@jest/globals';

// Hundreds of tests stop, cut and freeze real servers beside each other; a busy machine can make one miss its time limit. Each failure
// is printed, also where the test succeeds when it is run again.
if (process.env['CI']) jest.retryTimes(2, { logErrorsBeforeRetry: true });
