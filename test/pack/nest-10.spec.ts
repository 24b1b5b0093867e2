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
  consumer = await Consumer.install('nest-10');
});
afterAll(() => server.stop());

describeApp({ type: 'commonjs', module: 'nodenext', compiler: 'typescript' }, ['express', 'fastify'], place);

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

describe('with the oldest versions that the package allows', () => {
  beforeAll(() => consumer.addOldest(10));

  // Two validators in the declarations of Nest 10.0 do not fit their base class.
  const build = { type: 'commonjs', module: 'nodenext', compiler: 'typescript', skipLibCheck: true } as const;
  describeApp(build, ['express'], place);
});
