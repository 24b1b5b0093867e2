import { Agent, request } from 'node:http';
import { Pool } from 'undici';

export const base64 = (text) => Buffer.from(text).toString('base64');
export const plain = (text) => Buffer.from(text, 'base64').toString();

/** The end of the range of all keys with the prefix. */
export function endOf(prefix) {
  const bytes = Buffer.from(prefix);
  bytes[bytes.length - 1] += 1;
  return bytes.toString('base64');
}

/** The JSON gateway of etcd, without anything that a call does not need. */
export class EtcdGateway {
  #url;
  #agent = new Agent({ keepAlive: true, noDelay: true });

  constructor(url) {
    this.#url = url;
  }

  async call(path, body) {
    const { response } = await this.#send(path, body, this.#agent);
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    if (response.statusCode !== 200) throw new Error(`${path}: ${text.trim()}`);
    return JSON.parse(text);
  }

  async txn(compare, success) {
    return this.call('/v3/kv/txn', { compare, success, failure: [] });
  }

  async lease(seconds) {
    const { ID } = await this.call('/v3/lease/grant', { TTL: seconds });
    return ID;
  }

  /** Resolves when the key is deleted after the revision. */
  async deletion(key, revision) {
    const body = { create_request: { key: base64(key), start_revision: String(revision + 1) } };
    const { sent, response } = await this.#send('/v3/watch', body, undefined);
    let rest = '';
    for await (const chunk of response.setEncoding('utf8')) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      const events = lines.filter(Boolean).flatMap((line) => JSON.parse(line).result?.events ?? []);
      if (events.some(({ type }) => type === 'DELETE')) break;
    }
    sent.destroy();
  }

  #send(path, body, agent) {
    return new Promise((resolve, reject) => {
      const text = JSON.stringify(body);
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) };
      const sent = request(this.#url + path, { method: 'POST', agent, headers }, (response) =>
        resolve({ sent, response }),
      );
      sent.on('error', reject);
      sent.end(text);
    });
  }
}

/** The same by `undici`, without its streams. */
export class UndiciGateway extends EtcdGateway {
  #pool;

  constructor(url) {
    super(url);
    this.#pool = new Pool(url, { allowH2: false });
  }

  call(path, body) {
    const post = { method: 'POST', path, headers: ['Content-Type', 'application/json'], body: JSON.stringify(body) };
    return new Promise((resolve, reject) => {
      let [status, text] = [0, ''];
      this.#pool.dispatch(post, {
        onRequestStart: () => {},
        onResponseStart: (_, answered) => (status = answered),
        onResponseData: (_, part) => (text += part),
        onResponseEnd: () =>
          status === 200 ? resolve(JSON.parse(text)) : reject(new Error(`${path}: ${text.trim()}`)),
        onResponseError: (_, error) => reject(error),
      });
    });
  }
}
