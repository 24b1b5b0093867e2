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
  consumer = await Consumer.install('nest-12');
});
afterAll(() => server.stop());

describeApp({ type: 'module', module: 'nodenext', compiler: 'typescript' }, ['express', 'fastify'], place);
describeApp({ type: 'module', module: 'nodenext', compiler: 'typescript-7' }, ['fastify'], place);
describeApp({ type: 'commonjs', module: 'nodenext', compiler: 'typescript' }, ['express'], place);

it('passes unit tests in jest with ES modules', async () => {
  const row = { what: 'unit tests, jest ESM', uses: ['@swc/jest', 'jest'] };
  const esm = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning'];
  await inMatrix(consumer, row, () => expectUnitTestsPass(consumer, server, esm));
});

it.each(['typescript', 'typescript-7'] as const)('has the types that it should, for %s', async (compiler) => {
  const row = { what: 'type tests', uses: [compiler] };
  await inMatrix(consumer, row, () => consumer.checkTypes(compiler));
});

it('is one copy for who imports and who requires it', async () => {
  const row = { what: 'import and require', uses: [] };
  await inMatrix(consumer, row, () => expectOneClass(consumer, server));
});

describe('with ioredis 5', () => {
  beforeAll(() => consumer.add('ioredis@^5.3.0'));

  describeApp({ type: 'module', module: 'nodenext', compiler: 'typescript' }, ['fastify'], place);
});
