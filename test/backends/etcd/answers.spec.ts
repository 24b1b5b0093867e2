import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { etcd, type EtcdOptions } from 'nest-redis-lock/etcd';
import { eventually } from '../../support/eventually.js';
import { openBackend } from '../../support/open-backend.js';
import { type EtcdServer, startEtcdServer } from '../../support/servers/etcd-server.js';

type Json = Record<string, unknown>;

/** Which answers of etcd a proxy changes, and to what. */
interface Wrong {
  readonly path: string;
  readonly change: (answer: Json) => unknown;
}

let server: EtcdServer;
let proxy: Server;
let wrong: Wrong | undefined;
let closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  server = await startEtcdServer();
  proxy = createServer((request, response) => {
    pass(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', () => resolve()));
});
beforeEach(() => {
  wrong = undefined;
});
afterEach(async () => {
  wrong = undefined;
  await Promise.all(closing.map((close) => close()));
  closing = [];
});
afterAll(async () => {
  proxy.closeAllConnections();
  proxy.close();
  await server.stop();
});

async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { url: path = '' } = request;
  // A stream stays without an answer: it is no part of this.
  if (path === '/v3/watch') return;
  const answer = await fetch(server.url + path, { method: 'POST', body: await text(request) });
  if (path !== wrong?.path) return void response.writeHead(answer.status).end(await answer.text());
  response.end(JSON.stringify(wrong.change((await answer.json()) as Json)));
}

function open(told: Parameters<typeof openBackend>[1] = {}, options: Partial<EtcdOptions> = {}) {
  const process = randomUUID();
  const { port } = proxy.address() as AddressInfo;
  const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${port}`, callTimeout: 10_000, ...options }), {
    process,
    ...told,
  });
  closing.push(() => backend.close());
  let tickets = 0;
  const request = (name: string) => ({ name, ticket: `${process}:${++tickets}`, ttl: 60_000 });
  return { backend, request };
}

/** The replies to the steps of a transaction, changed. */
function steps(change: (replies: Json[]) => unknown): (answer: Json) => unknown {
  return (answer) => ({ ...answer, responses: change(answer['responses'] as Json[]) });
}

/** The key that the first step of a transaction has read, changed. */
function keyValue(changes: Json): (answer: Json) => unknown {
  return steps(([first, ...others]) => {
    const range = first?.['response_range'] as { kvs: Json[] };
    return [{ response_range: { ...range, kvs: [{ ...range.kvs[0], ...changes }] } }, ...others];
  });
}

const inHeader = (revision: unknown) => (answer: Json) => ({ ...answer, header: { revision } });

describe('an answer to a transaction', () => {
  it.each<[string, Wrong['change']]>([
    ['has no revision', inHeader(undefined)],
    ['has a revision that is no number', inHeader('x')],
    ['has a revision that is no text', inHeader(7)],
    ['has revision 0', inHeader('0')],
    ['has a revision beyond all tokens', inHeader(String(2 ** 53))],
    ['has no replies', (answer) => ({ ...answer, responses: undefined })],
    ['has a reply too few', steps((replies) => replies.slice(1))],
    ['has a reply too many', steps((replies) => [...replies, replies[0]])],
    ['has a reply that is none', steps((replies) => [null, ...replies.slice(1)])],
    ['has the reply to another step', steps((replies) => replies.with(0, { response_put: {} }))],
    ['has not succeeded, though nothing was compared', (answer) => ({ ...answer, succeeded: undefined })],
    ['has another key', keyValue({ key: btoa('other') })],
    ['has a value that is no text', keyValue({ value: 5 })],
    ['has a lease that is no number', keyValue({ lease: 'x' })],
    ['has a revision of the key that is no text', keyValue({ mod_revision: ['5'] })],
    ['has a count that is no number', steps((replies) => replies.with(1, { response_range: { count: 'x' } }))],
  ])('fails the call where it %s, and the next call works', async (_what, change) => {
    const { backend, request } = open();
    const held = request('held');
    const before = await backend.acquire(held);
    wrong = { path: '/v3/kv/txn', change };
    await expect(backend.inspect(held)).rejects.toThrow('etcd, or a proxy before it, answered with');
    wrong = undefined;
    expect(await backend.inspect(held)).toMatchObject({ owner: held.ticket });
    const after = await backend.acquire(request('other'));
    expect(after).toMatchObject({ status: 'granted', remaining: expect.any(Number) });
    if (before.status !== 'granted' || after.status !== 'granted') throw new Error('not granted');
    expect(after.tokens.first).toBeGreaterThan(before.tokens.first);
  });
});

describe('a lease', () => {
  it.each<[string, Json]>([
    ['no number', { ID: undefined }],
    ['number 0, which is none', { ID: '0' }],
    ['a number that is no text', { ID: 7 }],
    ['a number that is none', { ID: 'x' }],
    ['no life', { TTL: undefined }],
    ['a life that is no number', { TTL: 'x' }],
    ['a life below 0', { TTL: '-1' }],
  ])('that has %s is not used, and the next one is', async (_what, changes) => {
    const { backend, request } = open();
    wrong = { path: '/v3/lease/grant', change: (answer) => ({ ...answer, ...changes }) };
    await expect(backend.acquire(request('leased'))).rejects.toThrow(/etcd, or a proxy before it|lease 0/);
    wrong = undefined;
    expect(await backend.acquire(request('leased'))).toMatchObject({ status: 'granted' });
  });

  it('is not believed to live for longer than was asked', async () => {
    const { backend, request } = open({}, { ttl: '5s' });
    wrong = { path: '/v3/lease/grant', change: (answer) => ({ ...answer, TTL: '100000' }) };
    const answer = await backend.acquire(request('long'));
    expect(answer.status === 'granted' && answer.remaining).toBeLessThanOrEqual(5_000);
  });

  it.each<[string, Json]>([
    ['without a number that can be read', { TTL: 'x' }],
    ['for another lease', { ID: '7' }],
  ])('ends where all answers to its renewals are %s', async (_what, changes) => {
    const lost: string[] = [];
    const { backend, request } = open({ lost: (tickets) => void lost.push(...tickets) }, { ttl: '2s' });
    const held = request('renewed');
    await backend.acquire(held);
    const change = ({ result }: Json) => ({ result: { ...(result as Json), ...changes } });
    wrong = { path: '/v3/lease/keepalive', change };
    await eventually(() => lost.length > 0);
  });
});

it('asks for a token again where the answer to a login has none', async () => {
  const { backend, request } = open({}, { username: 'root', password: 'secret' });
  const login = (answer: Json) => (wrong = { path: '/v3/auth/authenticate', change: () => answer });
  login({ header: {}, token: 5 });
  await expect(backend.acquire(request('login'))).rejects.toThrow('answered a login without a token');
  login({ header: {}, token: 'a token' });
  expect(await backend.acquire(request('login'))).toMatchObject({ status: 'granted' });
});
