import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import {
  type EtcdMember,
  type EtcdServer,
  startEtcdCluster,
  startEtcdServer,
} from '../../support/servers/etcd-server.js';
import { removeDirectory, temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

/** How etcd signs the tokens of its users, with keys in the directory. */
function signedTokens(directory: string): string {
  const [publicKey, privateKey] = [join(directory, 'public'), join(directory, 'private')];
  const pair = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
  });
  writeFileSync(publicKey, pair.publicKey);
  writeFileSync(privateKey, pair.privateKey);
  return `jwt,pub-key=${publicKey},priv-key=${privateKey},sign-method=RS256,ttl=60s`;
}

describe('a server', () => {
  // A busy machine takes longer to agree on a connection, or to check a password, than a call usually may.
  const patient = { callTimeout: 10_000 };
  const start = (options: Parameters<typeof etcd>[0]) =>
    startLockApp({ backend: etcd({ ...patient, ...options }), commandTimeout: 10_000, cache: false, failFast: true });

  describe('a cluster that asks for certificates', () => {
    const folder = temporaryDirectory();
    const [keyFile, certificateFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    let server: EtcdServer;
    beforeAll(async () => {
      const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
      const subject = ['-subj', '/CN=etcd', '-addext', 'subjectAltName=IP:127.0.0.1'];
      execFileSync('openssl', [...request, '-keyout', keyFile, '-out', certificateFile, ...subject], {
        stdio: 'ignore',
      });
      const files = ['--cert-file', certificateFile, '--key-file', keyFile, '--trusted-ca-file', certificateFile];
      server = await startEtcdServer({ scheme: 'https', args: [...files, '--client-cert-auth'] });
    });
    afterAll(async () => {
      await server.stop();
      removeDirectory(folder);
    });

    it('lets a client with a certificate and the authority lock and wait', async () => {
      const [key, cert, ca] = [readFileSync(keyFile), readFileSync(certificateFile), readFileSync(certificateFile)];
      await using app = await start({ endpoints: server.url, tls: { key, cert, ca } });
      const held = await app.locks.acquire('secret');
      const waiting = app.locks.acquire('secret', { wait: 30_000, order: 'fifo' });
      await held.release();
      await (await waiting).release();
      expect(app.logger.lines).toEqual([]);
    });

    it.each([
      ['trusts no authority', ['', ''], 'its certificate is not trusted: give its authority as tls: { ca }'],
      ['speaks no TLS', ['https:', 'http:'], 'check host and port, and whether it asks for https://'],
    ])('says of a client that %s what to do', async (_, [from, to]: string[], remedy) => {
      await expect(start({ endpoints: server.url.replace(from!, to!) })).rejects.toThrow(remedy);
    });

    it('says of a URL with another host than the certificate that the hosts differ', async () => {
      const ca = readFileSync(certificateFile);
      const started = start({ endpoints: server.url.replace('127.0.0.1', 'localhost'), tls: { ca } });
      await expect(started).rejects.toThrow(
        /Host: localhost\..*; its certificate is for another host: give a host that/,
      );
    });
  });

  describe.each([
    ['remembers', []],
    ['has signed', ['--auth-token']],
  ])('a cluster that asks for a user, by tokens that it %s', (_kind, signed) => {
    const password = 'a pass/word';
    const directory = temporaryDirectory();
    let member: EtcdMember;
    beforeAll(async () => {
      const token = signed.map((option) => `${option}=${signedTokens(directory)}`);
      // Its default makes a login so slow that a busy machine does not answer in time.
      [member] = (await startEtcdCluster(1, { args: ['--bcrypt-cost=4', ...token] })) as [EtcdMember];
      const ask = (path: string, body: object) => askEtcd(member.url, `/v3/auth${path}`, body);
      for (const name of ['root', 'shop', 'stranger']) await ask('/user/add', { name, password });
      for (const name of ['root', 'locks']) await ask('/role/add', { name });
      const [key, end] = [btoa('nest-redis-lock/'), btoa('nest-redis-lock0')];
      await ask('/role/grant', { name: 'locks', perm: { permType: 'READWRITE', key, range_end: end } });
      await ask('/user/grant', { user: 'root', role: 'root' });
      await ask('/user/grant', { user: 'shop', role: 'locks' });
      await ask('/enable', {});
    });
    afterAll(async () => {
      await member.stop();
      removeDirectory(directory);
    });

    it('goes on with a new token after each change of a role: a lock that is held, calls, and those who wait', async () => {
      await using app = await start({ endpoints: member.url, username: 'shop', password, ttl: 3_000 });
      await using other = await start({ endpoints: member.url, username: 'shop', password, ttl: 3_000 });
      const held = await app.locks.acquire('held meanwhile', { ttl: 3_000 });
      const { token } = await askEtcd<{ token: string }>(member.url, '/v3/auth/authenticate', {
        name: 'root',
        password,
      });
      await askEtcd(member.url, '/v3/auth/role/add', { name: 'reports' }, token);
      const until = performance.now() + held.remaining();
      const waiting = other.locks.acquire('held meanwhile', { wait: 60_000 });
      await eventually(async () => (await app.locks.inspect('held meanwhile'))?.waiting === 1);
      await app.locks.withLock('after the change', { wait: 20_000 }, async () => {});
      // It was renewed after the change.
      await eventually(() => performance.now() > until);
      held.assertHeld();
      await held.release();
      await (await waiting).release();
    });

    it('ends the wait of a user that has no rights', async () => {
      const backend = etcd({ ...patient, endpoints: member.url, username: 'stranger', password });
      await using app = await startLockApp({ backend });
      await expect(app.locks.acquire('denied', { wait: Infinity })).rejects.toMatchObject({
        code: 'LOCK_BACKEND',
        message: expect.stringMatching(/permission denied.*grant the user the right/),
      });
    });

    it('lets a user lock that has rights below the root only, also after its token was forgotten', async () => {
      await using app = await start({ endpoints: member.url, username: 'shop', password });
      await using other = await start({ endpoints: member.url, username: 'shop', password });
      const held = await app.locks.acquire('with a password');
      const waiting = other.locks.acquire('with a password', { wait: 60_000 });
      await eventually(async () => (await app.locks.inspect('with a password'))?.waiting === 1);
      await member.process.stop();
      await member.restart();
      await held.release();
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
      await next.release();
    });

    it.each([
      ['refuses connections', undefined],
      ['takes connections and never answers', () => {}],
    ])('starts and locks while the first of its endpoints %s', async (_, listener) => {
      const first = createTcpServer(listener);
      await new Promise<void>((resolve) => first.listen(0, '127.0.0.1', () => resolve()));
      const url = `http://127.0.0.1:${(first.address() as AddressInfo).port}`;
      if (!listener) first.close();
      try {
        const backend = openBackend(etcd({ endpoints: [url, member.url], username: 'shop', password }));
        await using app = await startLockApp({ backend, cache: false, failFast: true, commandTimeout: 5_000 });
        expect(app.logger.matching(/the other 1 of 2 endpoints serve/)).toHaveLength(1);
        await app.locks.withLock('by the second', { wait: 20_000 }, async () => {});
      } finally {
        first.close();
      }
    });

    it('logs in again when the answer to its login breaks off', async () => {
      const proxy = await FaultProxy.start(Number(new URL(member.url).port));
      const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, username: 'shop', password }));
      const app = await startLockApp({ backend, cache: false, failFast: false });
      try {
        const cut = proxy.cutReply('/v3/auth/authenticate');
        await app.locks.withLock('cut login', { wait: 20_000 }, () => cut);
      } finally {
        await app.close();
        await proxy.stop();
      }
    });

    it.each([
      ['a wrong password', { username: 'shop', password: 'wrong' }, 'correct username and password'],
      ['no user', {}, 'it asks for a user: give username and password'],
      ['a user without rights', { username: 'stranger', password }, 'grant the user the right to read and to write'],
    ])('refuses %s at the start, in one line without the password', async (_, credentials, remedy) => {
      const error = await start({ endpoints: member.url, ...credentials }).catch((reason: Error) => reason);
      const { message } = error as Error;
      expect(message).toContain(remedy);
      expect(message).not.toContain('\n');
      for (const secret of [password, 'wrong']) expect(message).not.toContain(secret);
    });
  });

  describe('a server that cannot serve', () => {
    it('is named when nothing listens there', async () => {
      const message = 'etcd: http://127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1; nothing listens there: start etcd';
      await expect(start({ endpoints: 'http://127.0.0.1:1' })).rejects.toThrow(
        `Lock backend "etcd": start failed: ${message}`,
      );
    });

    it('is refused where its version is too old', async () => {
      const old = createServer((_, response) => response.end('{"header":{},"version":"3.3.27","leader":"1"}'));
      await new Promise<void>((resolve) => old.listen(0, '127.0.0.1', () => resolve()));
      const url = `http://127.0.0.1:${(old.address() as AddressInfo).port}`;
      try {
        await expect(start({ endpoints: url })).rejects.toThrow(
          `etcd at ${url} is version 3.3.27; 3.4 or newer is needed`,
        );
      } finally {
        old.closeAllConnections();
        old.close();
      }
    });

    it('is named where something other than etcd answers in JSON', async () => {
      const other = createServer((_, response) => response.end('{"status":"ok"}'));
      await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', () => resolve()));
      const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
      const remedy = 'something other than etcd answers there: correct host, port and path';
      try {
        await expect(start({ endpoints: url })).rejects.toThrow(`etcd: ${url}: HTTP 200: {"status":"ok"}; ${remedy}`);
        await using app = await startLockApp({ backend: etcd({ endpoints: url }), cache: false, failFast: false });
        const refused = await app.locks.acquire('elsewhere', { wait: 0 }).catch((error: unknown) => error);
        expect(refused).toMatchObject({ code: 'LOCK_BACKEND' });
        expect(String((refused as Error).cause)).toContain(remedy);
      } finally {
        other.closeAllConnections();
        other.close();
      }
    });

    it('says that its disk quota is used up, also to a caller', async () => {
      await using server = await startEtcdServer();
      await using app = await start({ endpoints: server.url });
      const held = await app.locks.acquire('before');
      await askEtcd(server.url, '/v3/maintenance/alarm', { action: 'ACTIVATE', alarm: 'NOSPACE' });
      const remedy = 'its disk quota is used up: compact and defragment it, then etcdctl alarm disarm';
      await expect(start({ endpoints: server.url })).rejects.toThrow(remedy);
      const refused = await app.locks.acquire('full', { wait: 0 }).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: 'LOCK_BACKEND' });
      expect(String((refused as Error).cause)).toContain(remedy);
      await held.release();
      expect(await app.locks.isLocked('before')).toBe(false);
    });

    it('says that it has no leader', async () => {
      const members = await startEtcdCluster(2);
      const [first, second] = members as [EtcdMember, EtcdMember];
      second.process.pause();
      try {
        await eventually(async () => {
          const error = await start({ endpoints: first.url }).then(
            (app) => app.close(),
            (reason: Error) => reason,
          );
          return error?.message.includes('no leader; most of its members do not answer each other: see their logs');
        });
      } finally {
        second.process.resume();
        await Promise.all(members.map((member) => member.stop()));
      }
    });
  });
});

describe('a server that is being stopped', () => {
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
  let backend: OpenBackend;
  /** Of the next transactions; of those that are sent together, where it says so. */
  let treatments: Treatment[] = [];
  let ofSeveral = false;

  beforeAll(async () => {
    server = await startEtcdServer();
    // etcd may end a connection meanwhile, as of a watch.
    gateway = createServer((request, response) => {
      passOn(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
  });
  beforeEach(() => {
    ofSeveral = false;
    const { port } = gateway.address() as AddressInfo;
    backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${port}`, ttl: '9s' }));
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

  const take = async (name: string, ticket: string) => (await backend.acquire({ name, ticket, ttl: 60_000 })).status;

  it('a request that it did not begin is sent again', async () => {
    expect(await take('not begun', 'p:1')).toBe('granted');
    treatments = [{ ...CLOSED, carriedOut: false }];
    const released = await backend.release({ name: 'not begun', ticket: 'p:1' });
    expect(released).toMatchObject({ status: 'released' });
    expect(await take('not begun', 'p:2')).toBe('granted');
  });

  it('a proxy that finds no server has the request sent again', async () => {
    expect(await take('proxy', 'p:1')).toBe('granted');
    treatments = [{ status: 502, body: '<html>Bad gateway</html>', carriedOut: false }];
    expect(await backend.release({ name: 'proxy', ticket: 'p:1' })).toMatchObject({ status: 'released' });
  });

  it('a release that it carried out is not taken for the loss of the lock, though a later send was refused', async () => {
    const holds = ['one', 'two', 'three'].map((name, index) => ({ name, ticket: `p:${index}` }));
    for (const { name, ticket } of holds) expect(await take(name, ticket)).toBe('granted');
    ofSeveral = true;
    treatments = [
      { ...CLOSING, carriedOut: true },
      { ...INVALID, carriedOut: false },
    ];
    const [, ...together] = holds.map(({ name, ticket }) => backend.release({ name, ticket }));
    for (const release of together) expect(await release).toEqual({ status: 'gone', resent: true });
    expect(treatments).toEqual([]);
  });
});

describe('an answer that breaks off', () => {
  let server: EtcdServer;
  let proxy: FaultProxy;
  let app: LockApp;

  beforeAll(async () => {
    server = await startEtcdServer();
  });
  afterAll(() => server.stop());

  beforeEach(async () => {
    proxy = await FaultProxy.start(Number(new URL(server.url).port));
    const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, ttl: '9s' }));
    app = await startLockApp({ backend, cache: false });
  });
  afterEach(async () => {
    await app.close();
    await proxy.stop();
  });

  it.each(['/v3/lease/grant', '/v3/kv/txn'])('sends %s again when its answer breaks off', async (path) => {
    const cut = proxy.cutReply(path);
    await app.locks.withLock('cut', { wait: 20_000 }, () => cut);
  });

  it('goes on renewing its lease when the answer to a renewal breaks off', async () => {
    const held = await app.locks.acquire('cut');
    await proxy.cutReply('/v3/lease/keepalive');
    // Resolves at the next renewal only.
    await proxy.cutReply('/v3/lease/keepalive');
    held.assertHeld();
    await held.release();
  });
});
