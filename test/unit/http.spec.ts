import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { OutgoingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clientOf } from '../../lib/http/client-key.js';
import type { HttpResponse } from '../../lib/http/http-response.js';
import { idempotencyKeyRules } from '../../lib/http/idempotency-key-options.js';
import { headersOf, headersSince, RESPONSES } from '../../lib/http/kept-response.js';
import { hashKey } from '../../lib/keys/hash-key.js';
import { defaultApplication } from '../../lib/lock/line/process-label.js';

const of = (ip: string) => clientOf({ headers: {}, ip }, 'ip');

it.each([
  ['10.0.0.1', 'ip=10.0.0.1'],
  ['::ffff:10.0.0.1', 'ip=10.0.0.1'],
  ['2001:db8:1:2:3:4:5:6', 'ip=2001:db8:1:2::/64'],
  ['2001:0DB8:1:2::ffff', 'ip=2001:db8:1:2::/64'],
  ['2001:db8::1', 'ip=2001:db8:0:0::/64'],
  ['fe80::1%eth0', 'ip=fe80:0:0:0::/64'],
  ['::1', 'ip=0:0:0:0::/64'],
  ['203.0.113.9:40001', 'ip=203.0.113.9'],
  ['[2001:db8:1:2::7]:40001', 'ip=2001:db8:1:2::/64'],
  ['[2001:db8:1:2::7]', 'ip=2001:db8:1:2::/64'],
  ['[fe80::1%eth0]:80', 'ip=fe80:0:0:0::/64'],
  ['::ffff:cb00:7109', 'ip=203.0.113.9'],
  ['[::ffff:203.0.113.9]:443', 'ip=203.0.113.9'],
  ['0:0:0:0:0:ffff:203.0.113.9', 'ip=203.0.113.9'],
  ['64:ff9b::cb00:7109', 'ip=203.0.113.9'],
  ['64:ff9b::203.0.113.9', 'ip=203.0.113.9'],
  ['64:ff9b:1:fffe::203.0.113.9', 'ip=203.0.113.9'],
  ['::ffff:0:203.0.113.9', 'ip=203.0.113.9'],
  ['64:ff9b:2::203.0.113.9', 'ip=64:ff9b:2:0::/64'],
  ['unknown', 'ip=invalid'],
  ['010.0.0.1', 'ip=invalid'],
  ['%eth0', 'ip=invalid'],
])('the address %s counts as %s', (address, client) => {
  expect(of(address)).toBe(client);
});

it('two hosts of one IPv6 network are one client, those of two networks are two', () => {
  expect(of('2001:db8:1:2::1')).toBe(of('2001:db8:1:2:ffff::1'));
  expect(of('2001:db8:1:2::1')).not.toBe(of('2001:db8:1:3::1'));
});

it('a long header takes no more memory than a short one', () => {
  const client = (text: string) => clientOf({ headers: { 'x-key': text }, ip: '::1' }, 'header:X-Key');
  expect(client('a'.repeat(10_000)).length).toBeLessThan(128);
  expect(client('a'.repeat(10_000))).not.toBe(client('a'.repeat(9_999)));
});

it('nor does an address that the client sent through a trusted proxy', () => {
  expect(of('a'.repeat(10_000)).length).toBeLessThan(128);
  expect(of('a'.repeat(10_000))).toBe(of('b'.repeat(10_000)));
});

it('a header, which may be a secret, does not stand in a name', () => {
  const client = clientOf({ headers: { 'x-api-key': 'sk_live_51' }, ip: '::1' }, 'header:x-api-key');
  expect(client).toMatch(/^header:x-api-key=#[\da-f]{32}$/);
});

it('a header cannot forge an address', () => {
  expect(clientOf({ headers: { 'x-key': 'ip=1.2.3.4' }, ip: '::1' }, 'header:x-key')).not.toBe(of('1.2.3.4'));
});

it('a request without an address is refused', () => {
  expect(() => clientOf({ headers: {} }, 'ip')).toThrow('The request has no address (request.ip)');
});

it('what a user has of another kind than text or a number is refused, and does not count by the address', () => {
  const request = { headers: {}, ip: '::1', user: { _id: { $oid: '7' }, id: 7, admin: true, name: null } };
  expect(clientOf(request, 'user:id')).toBe('user:id=7');
  for (const key of ['user:name', 'user:absent'] as const) expect(clientOf(request, key)).toBe(of('::1'));
  expect(() => clientOf(request, 'user:_id')).toThrow('"user:_id", found an object and no text; give a function');
  expect(() => clientOf(request, 'user:admin')).toThrow('"user:admin", found a boolean');
  const key = (async () => 'later') as never;
  expect(() => clientOf(request, key)).toThrow('a function, found a promise');
});

it('takes a header for one of the handler that adds to the list which a middleware has set', () => {
  const response = new OutgoingMessage();
  response.setHeader('Link', ['</styles>; rel=preload']);
  response.setHeader('Vary', ['Accept']);
  const before = headersOf(response as unknown as HttpResponse);
  response.appendHeader('Link', '</orders/1>; rel=self');
  expect(headersSince(before, response as unknown as HttpResponse)).toEqual(['link']);
});

describe('what is compared of a request by default', () => {
  const { fingerprint } = idempotencyKeyRules({ scope: () => 'user' });
  const digest = (type: string, request: object, headers: object = { 'content-length': '9' }) =>
    hashKey(
      fingerprint({ method: 'POST', originalUrl: '/a', headers: { 'content-type': type, ...headers }, ...request }),
    );
  const file = (content: string) => ({
    fieldname: 'f',
    originalname: 'f',
    mimetype: 'text/plain',
    buffer: Buffer.from(content),
  });
  const form = 'multipart/form-data; boundary=x';

  it.each<[what: string, one: string, other: string]>([
    ['bodies', digest('application/json', { body: { a: 1 } }), digest('application/json', { body: { a: 2 } })],
    ['media types', digest('text/plain', { body: '<a/>' }), digest('application/xml', { body: '<a/>' })],
    [
      'raw bodies',
      digest('application/xml', { rawBody: Buffer.from('<a/>') }),
      digest('application/xml', { rawBody: Buffer.from('<b/>') }),
    ],
    ['a file', digest(form, { body: { n: 1 }, file: file('a') }), digest(form, { body: { n: 1 }, file: file('b') })],
    ['files', digest(form, { body: {}, files: [file('a')] }), digest(form, { body: {}, files: [file('b')] })],
    [
      'files by their fields',
      digest(form, { body: {}, files: { f: [file('a')] } }),
      digest(form, { body: {}, files: { f: [file('b')] } }),
    ],
  ])('are %s', (_what, one, other) => {
    expect(one).not.toBe(other);
  });

  it('is the same for the same request, whatever separates the parts of its form', () => {
    const request = () => ({ body: { n: 1 }, file: file('a') });
    expect(digest(form, request())).toBe(digest('multipart/form-data; boundary=y', request()));
    expect(digest('application/vnd.api+json', { body: {} }, { 'content-length': '2' })).toBeTruthy();
    expect(digest('application/json', { body: {} }, { 'content-length': '0' })).toBeTruthy();
  });

  const http2 = { httpVersionMajor: 2, stream: { endAfterHeaders: false } };
  const long = { 'content-length': '9' };
  it.each<[what: string, type: string, request: object, headers: object]>([
    ['of a type that no parser knows', 'application/xml', {}, long],
    ['of which Express makes an empty object', 'application/vnd.api+json', { body: {} }, long],
    ['in chunks', 'application/xml', {}, { 'transfer-encoding': 'chunked' }],
    ['over HTTP/2', 'application/xml', http2, {}],
    ['over HTTP/2 in Fastify', 'application/xml', { raw: http2 }, {}],
    ['with a file on a disk', form, { body: { n: 1 }, file: { path: '/tmp/f' } }, long],
    ['with a file on a disk among others', form, { body: { n: 1 }, files: [file('a'), { path: '/tmp/f' }] }, long],
    ['of a form that is read later', form, {}, long],
  ])('is nothing for a body %s, which is refused', (_what, type, request, headers) => {
    expect(() => digest(type, request, headers)).toThrow('was read by no parser');
  });

  it('needs no body of a request that has none', () => {
    const http2WithoutBody = { httpVersionMajor: 2, stream: { endAfterHeaders: true } };
    expect(digest('application/xml', {}, {})).toBe(digest('application/xml', http2WithoutBody, {}));
  });
});

describe('the default name of the application', () => {
  const [main, folder] = [process.argv[1] as string, process.cwd()];
  let root: string;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'application-'));
    for (const each of ['dist', 'other', 'node_modules/runner']) mkdirSync(join(root, each), { recursive: true });
    process.chdir(join(root, 'other'));
  });
  afterEach(() => {
    process.chdir(folder);
    process.argv[1] = main;
    rmSync(root, { recursive: true });
  });

  const named = (at: string, content: string) => writeFileSync(join(root, at, 'package.json'), content);

  it('is that of the package.json next to the main file or above it', () => {
    named('.', '{ "name": "shop" }');
    named('dist', '{ "type": "module" }');
    named('other', '{ "name": "other" }');
    process.argv[1] = join(root, 'dist/main.js');
    expect(defaultApplication()).toBe('shop');
  });

  it('is that of the working directory, where a package runs the application', () => {
    named('node_modules/runner', '{ "name": "runner" }');
    named('other', '{ "name": "other" }');
    process.argv[1] = join(root, 'node_modules/runner/cli.js');
    expect(defaultApplication()).toBe('other');
  });

  it.each(['{}', '{ "name": "" }', '{ "name": 7 }', 'no JSON'])('is none with %s', (content) => {
    for (const each of ['.', 'other']) named(each, content);
    process.argv[1] = join(root, 'dist/main.js');
    expect(defaultApplication()).toBeUndefined();
  });
});

it('an answer that JSON has no text for is kept: the application may send it by a replacer of its own', () => {
  const kept = { status: 201, headers: {}, body: { id: 5n, rows: [{ sum: 7n }] } };
  expect(RESPONSES.deserialize(RESPONSES.serialize(kept) as Buffer)).toEqual(kept);
});
