import { readFile } from 'node:fs/promises';
import type { RedisServer } from '../../support/servers/redis-server.js';
import type { Consumer } from './consumer.js';
import { workplace } from './packed.js';

/** Runs the consumer's own jest on the tests of `unit`. */
export async function expectUnitTestsPass(
  consumer: Consumer,
  server: RedisServer,
  nodeOptions: string[] = [],
): Promise<void> {
  const report = workplace(`unit-tests-${process.pid}.json`);
  const jest = [...nodeOptions, 'node_modules/jest/bin/jest.js', '--json', `--outputFile=${report}`];
  await consumer.node(jest, { REDIS_URL: server.url });
  expect(JSON.parse(await readFile(report, 'utf8'))).toMatchObject({ numPassedTests: 5, numTotalTests: 5 });
}
