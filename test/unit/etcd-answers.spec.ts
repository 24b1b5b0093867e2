import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { EtcdEndpoint } from '../../lib/backends/etcd/etcd-endpoint.js';

let server: Server;
let endpoint: EtcdEndpoint;
let answer: { readonly status: number; readonly body: string };

beforeEach(async () => {
  server = createServer((_, response) => response.writeHead(answer.status).end(answer.body));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  endpoint = new EtcdEndpoint(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, undefined);
});
afterEach(async () => {
  endpoint.close();
  await new Promise((resolve) => server.close(resolve));
});

const post = () => endpoint.post('/v3/path', '{}', undefined, 60_000);

it.each([
  '<html>Bad gateway</html>',
  '{"message":"Bad gateway"}',
  '{"error":"Bad gateway"}',
  '{"error":null}',
  'null',
  '"Bad gateway"',
  '',
])('a request that a proxy answered by 502 and %j is one for another member', async (body) => {
  answer = { status: 502, body };
  const message = expect.stringMatching(/^HTTP 502/);
  await expect(post()).rejects.toMatchObject({ isOfMember: true, isUncertain: true, message });
});

it.each([
  '<html>Welcome</html>',
  'null',
  '"Welcome"',
  '[]',
  '{}',
  '{"status":"ok"}',
  '{"header":null}',
  '{"result":"Welcome"}',
  '{"result":{"TTL":"10"}}',
])('200 and %j are the answer of something else', async (body) => {
  answer = { status: 200, body };
  await expect(post()).rejects.toMatchObject({ isOfMember: false, message: `HTTP 200: ${body}` });
});
