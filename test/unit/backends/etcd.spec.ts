import { getEventListeners } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import { Client } from 'undici';
import { EtcdEndpoint, EtcdExchange } from '../../../lib/backends/etcd/etcd-endpoint.js';

describe('an endpoint of etcd', () => {
  const LIMIT = 60_000;
  /** What every answer of etcd has. */
  const ANSWER = '{"header":{}}';

  let server: Server;
  let endpoint: EtcdEndpoint;
  let connections: number;
  /** What the server does with a request. */
  let serve: (socket: Socket, request: string) => void;

  beforeEach(async () => {
    connections = 0;
    server = createServer({ noDelay: true }, (socket) => {
      connections += 1;
      socket.on('data', (data) => serve(socket, data.toString()));
      socket.on('error', () => {});
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
    endpoint = new EtcdEndpoint(`http://127.0.0.1:${(server.address() as AddressInfo).port}/under/`, undefined);
  });
  afterEach(async () => {
    endpoint.close();
    await new Promise((resolve) => server.close(resolve));
  });

  const post = (body = ANSWER, token?: string, limit = LIMIT) => endpoint.post('/v3/path', body, token, limit);
  const withLength = (body: string, more = '') =>
    `HTTP/1.1 200 OK\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;

  it('sends what etcd needs, and the length of the body in bytes', async () => {
    let received = '';
    serve = (socket, request) => {
      received = request;
      socket.write(withLength('{"header":{},"name":"ü"}'));
    };
    expect(await post('{"name":"ü"}', 'the token')).toEqual({ header: {}, name: 'ü' });
    const [first, ...others] = received.split('\r\n');
    expect(first).toBe('POST /under/v3/path HTTP/1.1');
    expect(others.map((line) => line.toLowerCase())).toEqual(
      expect.arrayContaining([
        'content-type: application/json',
        'grpc-metadata-hasleader: true',
        'authorization: the token',
        'content-length: 13',
      ]),
    );
  });

  it('gives each of several requests at one time a connection, and uses those again', async () => {
    const waiting: Socket[] = [];
    serve = (socket, request) => {
      waiting.push(socket);
      if (waiting.length < 3) return;
      for (const each of waiting.splice(0)) each.write(withLength(request.slice(request.indexOf('{'))));
    };
    for (let round = 0; round < 10; round++) await Promise.all([post(), post(), post()]);
    // One that has just been answered takes the next request only in the next turn.
    expect(connections).toBeLessThanOrEqual(6);
  });

  it.each([
    ['says that it closes it', withLength(ANSWER, 'Connection: close\r\n')],
    ['speaks HTTP/1.0', `HTTP/1.0 200 OK\r\nContent-Length: ${ANSWER.length}\r\n\r\n${ANSWER}`],
    ['sends more than the answer', `${withLength(ANSWER)}HTTP/1.1 200 OK\r\n`],
  ])('leaves a connection whose server %s', async (_, answer) => {
    serve = (socket) => socket.write(answer);
    await post();
    await post();
    expect(connections).toBe(2);
  });

  it.each([
    ['closes', (socket: Socket) => socket.end()],
    ['answers nothing that was asked on', (socket: Socket) => socket.write(withLength('{"to":"nobody"}'))],
  ])('leaves a connection that the server %s while it is idle', async (_, disturb) => {
    const sockets: Socket[] = [];
    serve = (socket) => {
      sockets.push(socket);
      socket.write(withLength(ANSWER));
    };
    await post();
    const closed = new Promise((resolve) => sockets[0]?.once('close', resolve));
    disturb(sockets[0] as Socket);
    await closed;
    expect(await post()).toEqual(JSON.parse(ANSWER));
    expect(connections).toBe(2);
  });

  it('leaves nothing of a connection that is closed', async () => {
    const listened = new Set<EventTarget>();
    const target = Object.getPrototypeOf(AbortSignal.prototype) as EventTarget;
    const { addEventListener } = target;
    target.addEventListener = function noting(this: EventTarget, ...added) {
      if (added[0] === 'abort') listened.add(this);
      addEventListener.apply(this, added);
    };
    serve = (socket) => socket.end(withLength(ANSWER, 'Connection: close\r\n'));
    try {
      for (let request = 0; request < 20; request++) await post();
    } finally {
      target.addEventListener = addEventListener;
    }
    const listeners = [...listened].map((signal) => getEventListeners(signal, 'abort').length);
    expect(connections).toBe(20);
    expect(listeners).toHaveLength(20);
    expect(Math.max(...listeners)).toBe(1);
  });

  it('fails a request whose answer is no HTTP', async () => {
    serve = (socket) => socket.write('SSH-2.0-server\r\n\r\n');
    await expect(post()).rejects.toMatchObject({ isUncertain: true });
  });

  it.each([
    ['before the answer', ''],
    ['in its head', 'HTTP/1.1 200 OK\r\nContent-Le'],
    ['in its body', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}'],
    ['between two chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n'],
  ])('fails a request whose connection ends %s', async (_, answer) => {
    serve = (socket) => socket.end(answer);
    await expect(post()).rejects.toMatchObject({ isUncertain: true, message: expect.stringContaining('closed') });
  });

  it('gives up a request without an answer, and its connection', async () => {
    let closed: Promise<unknown> | undefined;
    serve = (socket) => {
      closed = new Promise((resolve) => socket.once('close', resolve));
    };
    await expect(post('{}', undefined, 50)).rejects.toMatchObject({
      isUncertain: true,
      message: 'no answer within 50 ms',
    });
    await closed;
    serve = (socket) => socket.write(withLength(ANSWER));
    expect(await post()).toEqual(JSON.parse(ANSWER));
  });

  it('says that nothing was sent where there was no connection', async () => {
    const nowhere = new EtcdEndpoint('http://127.0.0.1:1', undefined);
    await expect(nowhere.post('/', '{}', undefined, LIMIT)).rejects.toMatchObject({ isUncertain: false });
  });

  const running = () => process.getActiveResourcesInfo().filter((each) => each === 'TCPSocketWrap').length;

  it('keeps the process running for a request only', async () => {
    let during = -1;
    serve = (socket) => {
      // That of the server counts as well.
      socket.unref();
      during = running();
      socket.write(withLength(ANSWER));
    };
    await post();
    await post();
    expect(during).toBe(1);
    await turnOfTheLoop();
    expect(running()).toBe(0);
    const opened = new Promise<void>((resolve) => {
      serve = (socket) => {
        socket.unref();
        resolve();
      };
    });
    const close = endpoint.stream('/v3/watch', '{}', undefined, { onMessage: () => {}, onEnd: () => {} });
    await opened;
    expect(running()).toBe(0);
    close();
  });

  const request = (to: EtcdEndpoint) => to.post('/', '{}', undefined, LIMIT);
  const watch = (to: EtcdEndpoint) =>
    new Promise<never>((_, onEnd) => to.stream('/', '{}', undefined, { onMessage: () => {}, onEnd }));

  describe.each([
    ['a request', request],
    ['a stream', watch],
  ])('a connection for %s', (_, open) => {
    let secure: EtcdEndpoint;
    beforeEach(() => {
      secure = new EtcdEndpoint(`https://127.0.0.1:${(server.address() as AddressInfo).port}`, undefined);
    });

    /** What the client says first; it gets no answer. */
    const greeting = () =>
      new Promise<string>((resolve) => {
        serve = (socket, hello) => {
          socket.unref();
          resolve(hello);
        };
      });

    it('ends when the endpoint is closed, even if it is not open yet', async () => {
      const greeted = greeting();
      const ended = open(secure).catch(() => {});
      await greeted;
      expect(running()).toBe(1);
      secure.close();
      await ended;
      // Node.js closes what is destroyed within a few turns.
      for (let turns = 0; turns < 10; turns++) await turnOfTheLoop();
      expect(running()).toBe(0);
    });

    it('offers HTTP/1.1 and nothing else', async () => {
      const greeted = greeting();
      const ended = open(secure).catch(() => {});
      // The length of the list, and of the name.
      expect(await greeted).toContain('\0\t\bhttp/1.1');
      secure.close();
      await ended;
    });
  });

  it('ends the requests under way when it is closed', async () => {
    serve = () => endpoint.close();
    await expect(post()).rejects.toMatchObject({ isUncertain: true });
  });

  it('passes on the messages of a stream as they come, cut anywhere, and its end', async () => {
    const lines = Buffer.from('{"result":{"header":"ü"}}\n{"result":{"header":2}}\n');
    serve = (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
      for (const byte of lines)
        socket.write(Buffer.concat([Buffer.from('1\r\n'), Buffer.of(byte), Buffer.from('\r\n')]));
      socket.end();
    };
    const messages: unknown[] = [];
    const why = await new Promise<Error>((onEnd) => {
      endpoint.stream('/v3/watch', '{}', undefined, { onMessage: (message) => messages.push(message), onEnd });
    });
    expect(messages).toEqual([{ header: 'ü' }, { header: 2 }]);
    expect(why.message).toContain('closed');
  });

  it('tells nothing more of a stream that was closed here', async () => {
    const heard: unknown[] = [];
    let closed: Promise<unknown> | undefined;
    serve = (socket) => {
      closed = new Promise((resolve) => socket.once('close', resolve));
      socket.write(
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n{"result":{"header":1}}\n{"result":{"header":2}}\n\n\n\r\n',
      );
    };
    await new Promise<void>((resolve) => {
      const close = endpoint.stream('/v3/watch', '{}', undefined, {
        onMessage: (message) => {
          heard.push(message);
          close();
          resolve();
        },
        onEnd: (why) => heard.push(why),
      });
    });
    await closed;
    expect(heard).toEqual([{ header: 1 }]);
  });
});

describe('an answer of something before etcd', () => {
  let server: HttpServer;
  let endpoint: EtcdEndpoint;
  let answer: { readonly status: number; readonly body: string };

  beforeEach(async () => {
    server = createHttpServer((_, response) => response.writeHead(answer.status).end(answer.body));
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
});

it('sends nothing of a request that was given up before there was a connection, and says so', async () => {
  const received: string[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      received.push(data.toString());
      socket.end();
    });
  });
  const closed = new Promise((resolve) => server.once('connection', (socket) => socket.once('close', resolve)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const sent: boolean[] = [];
  const exchange = new EtcdExchange(
    () => {},
    (_, uncertain) => sent.push(uncertain),
  );
  client.dispatch({ method: 'POST', path: '/', body: '{}' }, exchange);
  exchange.giveUp(new Error('too late'));
  await closed;
  expect(received).toEqual([]);
  expect(new Set(sent)).toEqual(new Set([false]));
  await client.destroy();
  await new Promise((resolve) => server.close(resolve));
});
