import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { LockBackend } from 'nest-redis-lock';
import { etcd } from 'nest-redis-lock/etcd';
import { startEtcdServer, type EtcdServer } from '../../support/servers/etcd-server.js';

/** How the gateway treats a transaction that it does not just pass on. */
interface Treatment {
  /** Whether etcd gets it. */
  readonly carriedOut: boolean;
  /** What the gateway answers instead of the answer of etcd. */
  readonly status: number;
  readonly body: string;
}

const answer = (status: number, code: number, message: string) => ({
  status,
  body: JSON.stringify({ error: message, message, code }),
});
/** What a server that is stopped answers: to what it has begun, and to what comes after it. */
const CLOSING = answer(503, 14, 'transport is closing');
const CLOSED = answer(408, 1, 'grpc: the client connection is closing');
const INVALID = answer(400, 3, 'etcdserver: duplicate key given in txn request');

let server: EtcdServer;
let gateway: Server;
let backend: LockBackend;
/** Of the next transactions; of those that are sent together, where it says so. */
let treatments: Treatment[] = [];
let ofSeveral = false;

beforeAll(async () => {
  server = await startEtcdServer();
  gateway = createServer((request, response) => void passOn(request, response));
  await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
});
beforeEach(() => {
  ofSeveral = false;
  const { port } = gateway.address() as AddressInfo;
  backend = etcd({ endpoints: `http://127.0.0.1:${port}`, ttl: '9s' });
});
afterEach(() => backend.close?.());
afterAll(async () => {
  gateway.close();
  await server.stop();
});

async function passOn(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = 'POST', url = '' } = request;
  const sent = await text(request);
  const treated = url === '/v3/kv/txn' && (!ofSeveral || sent.includes('request_txn'));
  const treatment = treated ? treatments.shift() : undefined;
  const { status, body } =
    treatment?.carriedOut === false ? treatment : await carryOut(url, { method, body: sent }, treatment);
  response.writeHead(status).end(body);
}

async function carryOut(url: string, request: RequestInit, instead: Treatment | undefined) {
  const answered = await fetch(server.url + url, request);
  const body = await answered.text();
  return instead ?? { status: answered.status, body };
}

const take = async (name: string, ticket: string) =>
  (await backend.acquire({ names: [name], ticket, ttl: 60_000 })).status;

describe('a server that is being stopped', () => {
  it('a request that it did not begin is sent again', async () => {
    expect(await take('not begun', 'p:1')).toBe('granted');
    treatments = [{ ...CLOSED, carriedOut: false }];
    const released = await backend.release({ names: ['not begun'], ticket: 'p:1' });
    expect(released).toMatchObject({ status: 'released' });
    expect(await take('not begun', 'p:2')).toBe('granted');
  });

  it('a proxy that finds no server has the request sent again', async () => {
    expect(await take('proxy', 'p:1')).toBe('granted');
    treatments = [{ status: 502, body: '<html>Bad gateway</html>', carriedOut: false }];
    expect(await backend.release({ names: ['proxy'], ticket: 'p:1' })).toMatchObject({ status: 'released' });
  });

  it('a release that it carried out is not taken for the loss of the lock, though a later send was refused', async () => {
    const holds = ['one', 'two', 'three'].map((name, index) => ({ name, ticket: `p:${index}` }));
    for (const { name, ticket } of holds) expect(await take(name, ticket)).toBe('granted');
    ofSeveral = true;
    treatments = [
      { ...CLOSING, carriedOut: true },
      { ...INVALID, carriedOut: false },
    ];
    const [, ...together] = holds.map(({ name, ticket }) => backend.release({ names: [name], ticket }));
    for (const release of together) expect(await release).toEqual({ status: 'gone', resent: true });
    expect(treatments).toEqual([]);
  });
});
