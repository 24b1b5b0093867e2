// A redis-server and a model of it, which get the same commands at the same time of their clocks. Each answer, each
// message and all keys must be the same after each command.

import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setImmediate as immediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { Redis, type RedisOptions } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { LIST_SET } from '../../../lib/backends/redis/cache/collections.lua.js';
import { clockStandsStill, setStillClock } from '../../support/servers/shifted-clock.js';
import { temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { createLua } from './lua.js';
import { type Connection, RedisModel } from './redis-model.js';
import type { Reply } from './replies.js';
import { encode, encodePush, frameEnd, parseCommands, parseFrame, type Protocol } from './resp.js';
import { SocketStandIn } from './socket-stand-in.js';

/** In µs. */
const START = Date.UTC(2030, 0, 1) * 1_000;
/** What is not the same on two servers. */
const OF_THE_SERVER = new Set(['hello', 'info', 'role', 'client', 'scan']);
const OF_A_CONNECTION = new Set(['hello', 'client', 'subscribe', 'unsubscribe']);
const UNORDERED = new Set(['smembers', 'keys', LIST_SET.sha1, LIST_SET.lua]);
/** The last commands that the report of a difference shows. */
const REMEMBERED = 12;

export class ComparedRedis implements AsyncDisposable {
  readonly connections = new Set<ComparedConnection>();
  commands = 0;
  /** What was not the same, with the commands before it. */
  difference: string | undefined;
  private readonly history: string[] = [];
  /** What the model has carried out and the server has not. */
  private batch: Executed[] = [];
  private turn: Promise<unknown> | undefined;

  private constructor(
    readonly server: RedisServer,
    readonly model: RedisModel,
    private readonly control: Redis,
    private readonly clock: { micros: number; readonly file: string },
    /** For all commands that depend on no connection, in their order. */
    private readonly relay: RawConnection,
    readonly protocol: Protocol,
  ) {}

  /** `lag`: the ms by which the model expires strings too late, to see that the comparison notices. */
  static async start({
    lag = 0,
    protocol,
  }: {
    readonly lag?: number;
    readonly protocol: Protocol;
  }): Promise<ComparedRedis> {
    const clock = { micros: START, file: `${temporaryDirectory()}/clock` };
    // The server alone decides when it looks for expired keys; without that, a key expires when it is looked at.
    const args = ['--enable-debug-command', 'yes'];
    const server = await startRedisServer({ args, env: clockStandsStill(clock.file, clock.micros) });
    const control = new Redis(server.port);
    await control.call('DEBUG', 'SET-ACTIVE-EXPIRE', '0');
    const lua = await createLua();
    const model = new (lag === 0 ? RedisModel : laggingModel(lag))({ micros: () => clock.micros, lua });
    const relay = new RawConnection(server.port);
    relay.send(['HELLO', String(protocol)]);
    await relay.nextFrames();
    return new ComparedRedis(server, model, control, clock, relay, protocol);
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

  /** The model carries it out at once, the server soon after. */
  carryOut(connection: ComparedConnection, args: readonly string[]): void {
    const own = connection.isOwn(args);
    const reply = connection.execute(args, own);
    if (this.difference !== undefined) return;
    this.commands += 1;
    const dump = JSON.stringify(this.model.dump().map(([key, type, value, pttl]) => [key, type, plain(value), pttl]));
    this.batch.push({ connection, args, own, reply, dump, micros: this.clock.micros });
    this.turn ??= this.compareAll().finally(() => (this.turn = undefined));
  }

  /** Has the server carry out what the model has. */
  private async compareAll(): Promise<void> {
    do {
      await immediate();
      const { batch } = this;
      this.batch = [];
      await this.compare(batch, new Map(Array.from(this.connections, (each) => [each, each.takeExpected()])));
    } while (this.batch.length > 0);
  }

  private async compare(batch: readonly Executed[], messages: Map<ComparedConnection, string[]>): Promise<void> {
    try {
      for (let i = 0; i < batch.length && this.difference === undefined;) {
        const own = batch.slice(i).findIndex((each) => each.own);
        const relayed = batch.slice(i, own < 0 ? undefined : i + own);
        await this.compareRelayed(relayed);
        i += relayed.length;
        const next = batch[i];
        if (next && this.difference === undefined) await this.compareOwn(next);
        i += 1;
      }
      // All messages have left the server before it answers the next command of their connections.
      await Promise.all(Array.from(messages, ([connection, model]) => connection.compareMessages(model)));
    } catch (error) {
      this.report((error as Error).stack ?? '');
    }
  }

  private async compareRelayed(batch: readonly Executed[]): Promise<void> {
    const { relay } = this;
    const sent = batch.filter(({ args }) => !isOf(OF_THE_SERVER, args));
    for (const { args } of sent) {
      relay.send(args);
      relay.send(['EVAL', DUMP, '0']);
    }
    if (sent.length === 0) return;
    const frames = await relay.nextFrames();
    for (const [i, each] of sent.entries()) {
      this.remember(each);
      const { args, reply } = each;
      const [real, model] = [frames[2 * i] ?? '', reply].map((frame) => comparable(frame, args));
      if (real !== model) return this.report(differenceOf('reply', real, model));
      this.compareKeys(frames[2 * i + 1] ?? '', each.dump);
      if (this.difference !== undefined) return;
    }
  }

  private async compareOwn(executed: Executed): Promise<void> {
    this.remember(executed);
    await executed.connection.carryOutForReal(executed.args);
  }

  private remember({ connection, args, micros }: Executed): void {
    this.history.push(`${micros} ${connection.name}: ${shown(args)}`);
    if (this.history.length > REMEMBERED) this.history.shift();
  }

  report(what: string): void {
    this.difference ??= `${this.history.join('\n')}\n\n${what}`;
  }

  /** All commands have been carried out. */
  async settled(): Promise<void> {
    while (this.turn) await this.turn;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.settled();
    for (const each of this.connections) each.destroy();
    this.relay.close();
    this.control.disconnect();
    await this.server.stop();
  }

  private compareKeys(frame: string, model: string): void {
    const dump = parseFrame(frame) as [string, string, unknown, number][];
    const real = dump.map(([key, type, value, pttl]) => [
      key,
      type,
      type === 'string' || type === 'list' ? value : sorted(value, type),
      pttl,
    ]);
    if (JSON.stringify(real) !== model) this.report(differenceOf('keys', real, JSON.parse(model)));
  }
}

/** A command that the model has carried out. */
interface Executed {
  readonly connection: ComparedConnection;
  readonly args: readonly string[];
  /** Whether it depends on its connection. */
  readonly own: boolean;
  /** Encoded. */
  readonly reply: string;
  /** All keys after it. */
  readonly dump: string;
  readonly micros: number;
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
  return JSON.stringify([first, script, ...args.slice(2)]).slice(0, 400);
}

function laggingModel(lag: number): typeof RedisModel {
  return class extends RedisModel {
    override put(key: string, value: string, expires: number | undefined): void {
      super.put(key, value, expires === undefined ? undefined : expires + lag);
    }
  };
}

/** A connection to the server. */
class RawConnection {
  private readonly socket: Socket;
  private readonly changes = new EventEmitter();
  private received = '';
  private marks = 0;

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1').on('error', () => {});
    this.socket.on('data', (data) => {
      this.received += data.toString('latin1');
      this.changes.emit('received');
    });
  }

  send(args: readonly string[]): void {
    this.socket.write(encode(args, 2), 'latin1');
  }

  /** What has arrived up to the answer of a PING, without that. */
  async nextFrames(): Promise<string[]> {
    const mark = `mark ${++this.marks}`;
    this.send(['PING', mark]);
    const frames: string[] = [];
    let from = 0;
    for (;;) {
      const end = frameEnd(this.received, from);
      if (end < 0) {
        await once(this.changes, 'received');
        continue;
      }
      const frame = this.received.slice(from, end);
      from = end;
      if (frame.includes(mark)) break;
      frames.push(frame);
    }
    this.received = this.received.slice(from);
    return frames;
  }

  close(): void {
    this.socket.destroy();
  }
}

/** The end of a connection that a client has. */
class ComparedConnection extends SocketStandIn implements Connection {
  protocol: Protocol = 2;
  channels?: Set<string>;
  id?: number;
  readonly name: string;
  private rest = '';
  private readonly real: RawConnection;
  /** Messages, and answers that come on this connection. */
  private readonly expected: string[] = [];
  /** The same of the server. */
  private readonly arrived: string[] = [];

  constructor(private readonly redis: ComparedRedis) {
    super('compared');
    this.name = `connection ${redis.connections.size + 1}`;
    redis.connections.add(this);
    this.real = new RawConnection(redis.server.port);
  }

  push(message: readonly Reply[]): void {
    this.expected.push(this.answer(encodePush(message, this.protocol)));
  }

  write(data: string | Buffer): boolean {
    const { commands, rest } = parseCommands(this.rest + Buffer.from(data as Buffer).toString('latin1'));
    this.rest = rest;
    for (const args of commands) this.redis.carryOut(this, args);
    return true;
  }

  /** The model carries the command out; returns its answer. */
  execute(args: readonly string[], own: boolean): string {
    const reply = this.redis.model.execute(this, args);
    if (reply === undefined) return '';
    const text = this.answer(encode(reply, this.protocol));
    if (own && !isOf(OF_THE_SERVER, args)) this.expected.push(text);
    return text;
  }

  /** Whether the command depends on its connection. */
  isOwn(args: readonly string[]): boolean {
    return isOf(OF_A_CONNECTION, args) || (this.protocol === 2 && (this.channels?.size ?? 0) > 0);
  }

  async carryOutForReal(args: readonly string[]): Promise<void> {
    this.real.send(await this.asOfTheServer(args));
    const frames = await this.real.nextFrames();
    if (isOf(OF_THE_SERVER, args)) frames.pop();
    this.arrived.push(...frames);
  }

  takeExpected(): string[] {
    return this.expected.splice(0);
  }

  async compareMessages(model: readonly string[]): Promise<void> {
    if (model.length + this.arrived.length === 0 && !this.channels?.size) return;
    this.arrived.push(...(await this.real.nextFrames()));
    const [real, ours] = [this.arrived.splice(0), model].map(withTrackingLast);
    if (!isDeepStrictEqual(real, ours)) this.redis.report(differenceOf(`${this.name} received`, real, ours));
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
      this.real.close();
      this.emit('close', false);
    });
    return this;
  }

  private answer(text: string): string {
    setImmediate(() => this.destroyed || this.emit('data', Buffer.from(text, 'latin1')));
    return text;
  }

  /** A connection has another id at the server. */
  private async asOfTheServer(args: readonly string[]): Promise<readonly string[]> {
    const place = args.findIndex((each) => each.toUpperCase() === 'REDIRECT');
    if (args[0]?.toUpperCase() !== 'CLIENT' || place < 0) return args;
    this.real.send(['CLIENT', 'ID']);
    const frames = await this.real.nextFrames();
    const id = frames.pop() ?? '';
    this.arrived.push(...frames);
    return args.map((each, i) => (i === place + 1 ? id.slice(1).trim() : each));
  }
}

/** The server tells once of what several commands have changed, after the last that it found in a buffer. */
function withTrackingLast(frames: readonly string[]): string[] {
  const [others, tracking]: [string[], string[]] = [[], []];
  for (const frame of frames) (frame.includes('\r\n__redis__:invalidate\r\n*') ? tracking : others).push(frame);
  const keys = tracking.flatMap((frame) => (parseFrame(frame) as [string, string, string[]])[2]);
  return [...others, ...new Set(keys.toSorted())];
}

/** Of an error, only its kind. */
function comparable(frame: string, args: readonly string[]): string {
  if (frame.startsWith('-')) return frame.slice(0, frame.search(/[ \r]/));
  return isOf(UNORDERED, args) ? frame.split('\r\n').toSorted().join('\r\n') : frame;
}

/** `commands` may have scripts, too. */
function isOf(commands: ReadonlySet<string>, [command = '', script = '']: readonly string[]): boolean {
  return commands.has(/^eval(sha)?$/i.test(command) ? script : command.toLowerCase());
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
