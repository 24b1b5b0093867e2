// A redis-server and a model of it, which get the same commands at the same time of their clocks. Each answer, each
// message and all keys must be the same after each command.

import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { Redis, type RedisOptions } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { clockStandsStill, setStillClock } from '../../support/servers/shifted-clock.js';
import { temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { createLua } from './lua.js';
import { type Connection, RedisModel } from './redis-model.js';
import type { Reply } from './replies.js';
import { encode, encodePush, frameEnd, parseCommands, type Protocol } from './resp.js';

/** In µs. */
const START = Date.UTC(2030, 0, 1) * 1_000;
/** What is not the same on two servers. */
const OF_THE_SERVER = new Set(['hello', 'info', 'role', 'client', 'scan']);
const UNORDERED = new Set(['smembers', 'keys']);
/** The last commands that the report of a difference shows. */
const REMEMBERED = 12;

export class ComparedRedis implements AsyncDisposable {
  readonly connections = new Set<ComparedConnection>();
  commands = 0;
  /** What was not the same, with the commands before it. */
  difference: string | undefined;
  private readonly history: string[] = [];
  private turn: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly server: RedisServer,
    readonly model: RedisModel,
    private readonly control: Redis,
    private readonly clock: { micros: number; readonly file: string },
  ) {}

  /** `lag`: the ms by which the model expires keys too late, to see that the comparison notices. */
  static async start({ lag = 0 }: { readonly lag?: number } = {}): Promise<ComparedRedis> {
    const clock = { micros: START, file: `${temporaryDirectory()}/clock` };
    // The server alone decides when it looks for expired keys; without that, a key expires when it is looked at.
    const args = ['--enable-debug-command', 'yes'];
    const server = await startRedisServer({ args, env: clockStandsStill(clock.file, clock.micros) });
    const control = new Redis(server.port);
    await control.call('DEBUG', 'SET-ACTIVE-EXPIRE', '0');
    const lua = await createLua();
    const model = new (lag === 0 ? RedisModel : laggingModel(lag))({ micros: () => clock.micros, lua });
    return new ComparedRedis(server, model, control, clock);
  }

  get micros(): number {
    return this.clock.micros;
  }

  /** For clients of ioredis: their connections are compared. */
  get options(): RedisOptions {
    return { Connector: connectorOf(this), retryStrategy: null, enableReadyCheck: false };
  }

  async pass(micros: number): Promise<void> {
    await this.settled();
    this.clock.micros += Math.floor(micros);
    setStillClock(this.clock.file, this.clock.micros);
  }

  /** Empties both. */
  async restart(): Promise<void> {
    await this.settled();
    await this.fill(false);
    await this.control.flushall();
    await this.control.script('FLUSH');
    this.model.data.clear();
    this.model.scripts.clear();
    this.history.length = 0;
  }

  /** Leaves both without memory, or gives it back. */
  async fill(full: boolean): Promise<void> {
    await this.settled();
    await this.control.config('SET', 'maxmemory', full ? '1' : '0');
    this.model.full = full;
  }

  /** Carries out one command, after those before it. */
  carryOut(connection: ComparedConnection, args: readonly string[]): void {
    this.turn = this.turn.then(async () => {
      if (this.difference !== undefined) return connection.answerAlone(args);
      this.commands += 1;
      this.history.push(`${this.clock.micros} ${connection.name}: ${shown(args)}`);
      if (this.history.length > REMEMBERED) this.history.shift();
      await connection.carryOut(args).catch((error: Error) => this.report(String(error.stack)));
      return this.compareKeys();
    });
  }

  report(what: string): void {
    this.difference ??= `${this.history.join('\n')}\n\n${what}`;
  }

  /** All commands have been carried out. */
  async settled(): Promise<void> {
    let turn: Promise<unknown>;
    do {
      turn = this.turn;
      await turn;
    } while (turn !== this.turn);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.settled();
    for (const each of this.connections) each.destroy();
    this.control.disconnect();
    await this.server.stop();
  }

  private async compareKeys(): Promise<void> {
    const dump = asBytes(await this.control.callBuffer('EVAL', DUMP, '0')) as [string, string, unknown, number][];
    const real = dump.map(([key, type, value, pttl]) => [
      key,
      type,
      type === 'string' || type === 'list' ? value : sorted(value, type),
      pttl,
    ]);
    const model = this.model.dump().map(([key, type, value, pttl]) => [key, type, plain(value), pttl]);
    if (!isDeepStrictEqual(real, model)) this.report(differenceOf('keys', real, model));
  }
}

/** One character of a string is one byte. */
function asBytes(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return value.toString('latin1');
  return Array.isArray(value) ? value.map(asBytes) : value;
}

/** As strings, like those of the server. */
function plain(value: unknown): unknown {
  return Array.isArray(value) ? value.map((each) => (Array.isArray(each) ? each.map(String) : each)) : value;
}

/** Members of a set, or pairs of a hash or of a sorted set, in the order of their names. */
function sorted(value: unknown, type: string): unknown {
  const list = value as string[];
  if (type === 'set') return list.toSorted();
  const pairs = Array.from({ length: list.length / 2 }, (_, i) => list.slice(2 * i, 2 * i + 2));
  return pairs.toSorted(([one = ''], [other = '']) => (one < other ? -1 : 1));
}

const DUMP = `
local keys, dump = redis.call('KEYS', '*'), {}
table.sort(keys)
for i, key in ipairs(keys) do
  local type, value = redis.call('TYPE', key).ok, nil
  if type == 'string' then value = redis.call('GET', key)
  elseif type == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif type == 'set' then value = redis.call('SMEMBERS', key)
  elseif type == 'hash' then value = redis.call('HGETALL', key)
  else value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  dump[i] = {key, type, value, redis.call('PTTL', key)}
end
return dump`;

function differenceOf(what: string, real: unknown, model: unknown): string {
  return `${what}:\n  redis-server ${JSON.stringify(real)}\n  model        ${JSON.stringify(model)}`;
}

function shown(args: readonly string[]): string {
  const [first = '', second = ''] = args;
  const script = /^eval$/i.test(first) ? `${second.slice(0, 60)}...` : second;
  return JSON.stringify([first, script, ...args.slice(2)]);
}

function laggingModel(lag: number): typeof RedisModel {
  return class extends RedisModel {
    override put(key: string, value: string, expires: number | undefined): void {
      super.put(key, value, expires === undefined ? undefined : expires + lag);
    }
  };
}

/** The end of a connection that a client has. */
class ComparedConnection extends EventEmitter implements Connection {
  protocol: Protocol = 2;
  channels?: Set<string>;
  id?: number;
  readonly name: string;
  readonly remoteAddress = 'compared';
  readonly remotePort = 6379;
  readonly connecting = false;
  writable = true;
  destroyed = false;
  private rest = '';
  private readonly real: Socket;
  private received = '';
  private expected: string[] = [];
  private marks = 0;

  constructor(private readonly redis: ComparedRedis) {
    super();
    this.name = `connection ${redis.connections.size + 1}`;
    redis.connections.add(this);
    this.real = connect(redis.server.port, '127.0.0.1');
    this.real.on('data', (data) => {
      this.received += data.toString('latin1');
      this.emit('received');
    });
    this.real.on('error', () => {});
  }

  push(message: readonly Reply[]): void {
    this.answer(encodePush(message, this.protocol));
  }

  write(data: string | Buffer): boolean {
    const { commands, rest } = parseCommands(this.rest + Buffer.from(data as Buffer).toString('latin1'));
    this.rest = rest;
    for (const args of commands) this.redis.carryOut(this, args);
    return true;
  }

  async carryOut(args: readonly string[]): Promise<void> {
    const { model, connections } = this.redis;
    const name = args[0]?.toLowerCase() ?? '';
    const reply = model.execute(this, args);
    const before = this.expected.length;
    if (reply !== undefined) this.answer(encode(reply, this.protocol));
    if (name === 'scan') {
      this.expected.length = before;
      return;
    }
    this.send(await this.asOfTheServer(args));
    await this.compareReceived(name);
    // All messages have left the server before it answers the next command of their connections.
    const others = [...connections].filter((each) => each !== this && each.channels?.size);
    await Promise.all(others.map((each) => each.compareReceived('')));
  }

  /** After a difference: without the server. */
  answerAlone(args: readonly string[]): void {
    const reply = this.redis.model.execute(this, args);
    if (reply !== undefined) this.answer(encode(reply, this.protocol));
  }

  end(): void {
    this.destroy();
  }

  destroy(): this {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.writable = false;
    void this.redis.settled().then(() => {
      this.redis.model.close(this);
      this.redis.connections.delete(this);
      this.real.destroy();
      this.emit('close', false);
    });
    return this;
  }

  setTimeout(): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  resume(): this {
    return this;
  }

  pause(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  private answer(text: string): void {
    this.expected.push(text);
    setImmediate(() => this.destroyed || this.emit('data', Buffer.from(text, 'latin1')));
  }

  private send(args: readonly string[]): void {
    this.real.write(encode(args, 2), 'latin1');
  }

  /** A connection has another id at the server. */
  private async asOfTheServer(args: readonly string[]): Promise<readonly string[]> {
    const place = args.findIndex((each) => each.toUpperCase() === 'REDIRECT');
    if (args[0]?.toUpperCase() !== 'CLIENT' || place < 0) return args;
    this.send(['CLIENT', 'ID']);
    const [id = ''] = await this.nextFrames();
    return args.map((each, i) => (i === place + 1 ? id.slice(1).trim() : each));
  }

  /** What has arrived up to the answer of a PING, without that. */
  private async nextFrames(): Promise<string[]> {
    const mark = `mark ${++this.marks}`;
    this.send(['PING', mark]);
    const frames: string[] = [];
    for (;;) {
      const end = frameEnd(this.received, 0);
      if (end < 0) {
        await once(this, 'received');
        continue;
      }
      const frame = this.received.slice(0, end);
      this.received = this.received.slice(end);
      if (frame.includes(mark)) return frames;
      frames.push(frame);
    }
  }

  private async compareReceived(command: string): Promise<void> {
    const frames = await this.nextFrames();
    const expected = this.expected.splice(0);
    if (OF_THE_SERVER.has(command) && frames.length === expected.length) return;
    const [real, model] = [frames, expected].map((all) => all.map((each) => comparable(each, command)));
    if (!isDeepStrictEqual(real, model)) this.redis.report(differenceOf(`${this.name} received`, real, model));
  }
}

/** Of an error, only its kind. */
function comparable(frame: string, command: string): string {
  if (frame.startsWith('-')) return frame.slice(0, frame.search(/[ \r]/));
  return UNORDERED.has(command) ? frame.split('\r\n').toSorted().join('\r\n') : frame;
}

function connectorOf(redis: ComparedRedis): NonNullable<RedisOptions['Connector']> {
  class ComparedConnector {
    firstError: Error | undefined;
    private stream: ComparedConnection | undefined;

    check(): boolean {
      return true;
    }

    disconnect(): void {
      this.stream?.destroy();
    }

    async connect(): Promise<ComparedConnection> {
      this.stream = new ComparedConnection(redis);
      return this.stream;
    }
  }
  return ComparedConnector as unknown as NonNullable<RedisOptions['Connector']>;
}
