import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { Consumer } from './support/consumer.js';
import { describeApp } from './support/describe-app.js';
import { inMatrix } from './support/matrix.js';
import { expectOneClass } from './support/one-class.js';
import { expectUnitTestsPass } from './support/unit-tests.js';

let consumer: Consumer;
let server: RedisServer;
const place = () => ({ consumer, server });

beforeAll(async () => {
  server = await startRedisServer();
  consumer = await Consumer.install('nest-11');
});
afterAll(() => server.stop());

describeApp({ type: 'commonjs', module: 'nodenext', compiler: 'typescript' }, ['express', 'fastify'], place);
describeApp({ type: 'commonjs', module: 'commonjs', compiler: 'typescript' }, ['express'], place);
describeApp({ type: 'module', module: 'nodenext', compiler: 'typescript' }, ['fastify'], place);

it('passes unit tests in the jest that `nest new` sets up', async () => {
  const row = { what: 'unit tests, stock jest', uses: ['typescript', 'ts-jest', 'jest'] };
  await inMatrix(consumer, row, () => expectUnitTestsPass(consumer, server));
});

it.each(['typescript'] as const)('has the types that it should, for %s', async (compiler) => {
  const row = { what: 'type tests', uses: [compiler] };
  await inMatrix(consumer, row, () => consumer.checkTypes(compiler));
});

it('is one copy for who imports and who requires it', async () => {
  const row = { what: 'import and require', uses: [] };
  await inMatrix(consumer, row, () => expectOneClass(consumer, server));
});

describe('with ioredis 6', () => {
  beforeAll(() => consumer.add('ioredis@^6.0.0'));

  describeApp({ type: 'commonjs', module: 'nodenext', compiler: 'typescript' }, ['express'], place);
});

describe('with the oldest versions that the package allows', () => {
  beforeAll(() => consumer.addOldest(11));

  describeApp({ type: 'commonjs', module: 'nodenext', compiler: 'typescript' }, ['express'], place);
});
