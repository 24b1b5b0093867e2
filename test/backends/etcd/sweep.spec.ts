import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { LockBackend } from 'nest-redis-lock';
import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { startEtcdServer, type EtcdServer } from '../../support/servers/etcd-server.js';

/** The key of the owner of a name. */
const keyOf = (name: string) => `nest-redis-lock/lock//${name}/owner`;
/** A process sweeps after a third of its session, in s. */
const SESSION = 3;

let server: EtcdServer;
let gateway: Server;
let backend: LockBackend;
/** Loses the reply to the next request of this path: etcd has carried it out. */
let loseReply: string | undefined;
/** Runs when etcd has listed the keys of a lease, before the process gets the list. */
let onList: () => Promise<void>;
/** Runs before etcd gets a request that deletes a key. */
let onDelete: () => Promise<void>;
/** The last request that queues a ticket. */
let queued: string | undefined;

beforeAll(async () => {
  server = await startEtcdServer();
  gateway = createServer((request, response) => void passOn(request, response));
  await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
});
beforeEach(() => {
  onList = async () => {};
  onDelete = async () => {};
  const { port } = gateway.address() as AddressInfo;
  backend = etcd({ endpoints: `http://127.0.0.1:${port}`, ttl: `${SESSION}s` });
});
afterEach(() => backend.close());
afterAll(async () => {
  gateway.close();
  await server.stop();
});

async function passOn(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = 'POST', url = '' } = request;
  const sent = await text(request);
  if (sent.includes('delete_range')) await onDelete();
  if (/"failure":\[\{"request_put"/.test(sent)) queued = sent;
  const answer = await fetch(server.url + url, { method, body: sent });
  const body = await answer.text();
  if (url === loseReply) {
    loseReply = undefined;
    request.socket.destroy();
    return;
  }
  if (url === '/v3/lease/timetolive') await onList();
  response.writeHead(answer.status).end(body);
}

const ownerOf = async (name: string) => (await keysOf(server.url)).find(({ key }) => key === keyOf(name));

/** Writes an owner as a request would that etcd carries out late. */
const own = (name: string, ticket: string, lease: string | undefined) =>
  askEtcd(server.url, '/v3/kv/put', { key: btoa(keyOf(name)), value: btoa(ticket), lease });

it('keeps the ticket of a requeue that was sent twice', async () => {
  await backend.acquire({ names: ['requeued'], ticket: 'process:1', ttl: 10_000 });
  loseReply = '/v3/kv/txn';
  const again = await backend.queue?.requeue({
    name: 'requeued',
    ticket: 'process:1',
    again: 'process:2',
    claim: 1_000,
  });
  expect(again).toEqual({ status: 'not-owner', resent: true });
  const owner = await ownerOf('requeued');
  expect(owner?.value).toBe('process:2');
  await own('unknown', 'process:3', owner?.lease);
  await eventually(async () => !(await ownerOf('unknown')));
  expect((await ownerOf('requeued'))?.value).toBe('process:2');
});

it('frees no name that has passed to another process since its key was listed', async () => {
  await backend.acquire({ names: ['own'], ticket: 'process:1', ttl: 10_000 });
  const lease = (await ownerOf('own'))?.lease;
  const other = await askEtcd<{ ID: string }>(server.url, '/v3/lease/grant', { TTL: 60 });
  await own('passed on', 'process:2', lease);
  // A later key in the list: the sweep looks at it last.
  await own('unknown', 'process:3', lease);
  onList = async () => void (await own('passed on', 'other:1', other.ID));
  loseReply = '/v3/kv/txn';
  await backend.inspect({ name: 'own' });
  await eventually(async () => !(await ownerOf('unknown')));
  expect(await ownerOf('passed on')).toMatchObject({ value: 'other:1', lease: other.ID });
});

it('leaves a name alone that is being released', async () => {
  await backend.acquire({ names: ['own'], ticket: 'process:1', ttl: 10_000 });
  const lease = (await ownerOf('own'))?.lease;
  // A later key in the list: the sweep looks at it last.
  await own('unknown', 'process:2', lease);
  let release: Promise<unknown> | undefined;
  onList = () =>
    new Promise((listed) => {
      onList = async () => {};
      onDelete = async () => {
        onDelete = async () => {};
        listed();
        await eventually(async () => !(await ownerOf('unknown')));
      };
      release = Promise.resolve(backend.release({ names: ['own'], ticket: 'process:1' }));
    });
  loseReply = '/v3/kv/txn';
  await backend.ping();
  await eventually(async () => !(await ownerOf('unknown')));
  expect(await release).toEqual({ status: 'released', resent: false });
});

describe('a request that queues a ticket and is carried out a second time', () => {
  /** Its ticket has been granted the name in the meantime. */
  async function queuedAgain(name: string): Promise<string | undefined> {
    await backend.acquire({ names: [name], ticket: 'process:1', ttl: 10_000 });
    await backend.queue?.enqueue({ name, ticket: 'process:2', ttl: 10_000, claim: 1_000 });
    await backend.release({ names: [name], ticket: 'process:1' });
    const owner = await ownerOf(name);
    expect(owner?.value).toBe('process:2');
    await askEtcd(server.url, '/v3/kv/txn', JSON.parse(queued as string) as object);
    return owner?.lease;
  }

  const keysAbout = async (name: string) => (await keysOf(server.url)).filter(({ key }) => key.includes(`/${name}/`));

  it('leaves nothing behind when the ticket is released', async () => {
    await queuedAgain('twice');
    expect(await keysAbout('twice')).toHaveLength(2);
    const released = await backend.release({ names: ['twice'], ticket: 'process:2' });
    expect(released).toEqual({ status: 'released', resent: false });
    expect(await keysAbout('twice')).toEqual([]);
  });

  it('has queued nobody for good when its process knows the ticket no more', async () => {
    const lease = await queuedAgain('late');
    await backend.release({ names: ['late'], ticket: 'process:2' });
    await askEtcd(server.url, '/v3/kv/put', { key: btoa(keyOf('late')), value: btoa('other:1') });
    await askEtcd(server.url, '/v3/kv/txn', JSON.parse(queued as string) as object);
    expect(await keysAbout('late')).toMatchObject([{ value: 'other:1' }, { lease }]);
    loseReply = '/v3/kv/txn';
    await backend.ping();
    await eventually(async () => (await keysAbout('late')).length === 1);
    expect((await ownerOf('late'))?.value).toBe('other:1');
  });
});
