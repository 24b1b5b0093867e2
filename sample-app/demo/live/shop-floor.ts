import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { ConflictException, NotFoundException } from '@nestjs/common';
import { startRedisServer } from '../../servers/redis-server.js';
import type { Environment } from '../environment.js';
import type { LockBackendName } from '../shop-facts.js';
import type { Shop } from '../shop.js';
import type { ProcessState } from './live-state.js';

interface Process {
  shop: Shop;
  readonly link: CuttableLink;
  condition: ProcessState['condition'];
}

/** The processes of the shop and their Redis, and what the page can do to them. Processes are numbered from 1. */
export class ShopFloor {
  private processes: Process[] = [];
  private backend: LockBackendName | undefined;

  /** `changed` is called when a process has changed its condition by itself. */
  constructor(
    private readonly environment: Environment,
    private readonly changed: (number: number) => void,
  ) {}

  get redis(): 'running' | 'stopped' | 'given' {
    const { redisServer } = this.environment;
    if (!redisServer) return 'given';
    return redisServer.process.running ? 'running' : 'stopped';
  }

  list(): (Omit<ProcessState, 'accepted' | 'open'> & { readonly shop: Shop })[] {
    return this.processes.map(({ shop, link, condition }, index) => ({
      shop,
      number: index + 1,
      pid: shop.process.pid,
      condition,
      separable: link.separable,
    }));
  }

  numberOf(shop: Shop): number | undefined {
    const index = this.processes.findIndex((each) => each.shop === shop);
    return index === -1 ? undefined : index + 1;
  }

  numberWithPid(pid: number): number | undefined {
    const index = this.processes.findIndex(({ shop }) => shop.process.pid === pid);
    return index === -1 ? undefined : index + 1;
  }

  conditionOf(number: number): ProcessState['condition'] {
    return this.process(number).condition;
  }

  /** Repairs what is broken, and makes the processes those of these settings. */
  async prepare(instances: number, backend: LockBackendName): Promise<void> {
    await this.startRedis();
    if (backend !== this.backend || instances !== this.processes.length) return this.open(instances, backend);
    await Promise.all(this.processes.map((_, index) => this.repair(index + 1)));
  }

  freeze(number: number): void {
    const process = this.inCondition(number, 'running', 'frozen');
    process.shop.process.pause();
    process.condition = 'frozen';
  }

  cutOff(number: number): void {
    const process = this.inCondition(number, 'running', 'cut off');
    if (!process.link.separable)
      throw new ConflictException('Redis is not at 127.0.0.1: only connections on this machine can be cut');
    process.link.cut();
    process.condition = 'cut off';
  }

  async kill(number: number): Promise<void> {
    const process = this.process(number);
    if (process.condition === 'dead') throw new ConflictException(`Process ${number} is dead already`);
    process.condition = 'dead';
    await process.shop.process.kill();
  }

  /** Makes the process a running one again, whatever was done to it. */
  async repair(number: number): Promise<void> {
    const process = this.process(number);
    if (process.condition === 'frozen') process.shop.process.resume();
    if (process.condition === 'cut off') process.link.join();
    if (process.condition === 'dead') {
      const started = await this.start(process.link);
      const { shops } = this.environment;
      shops[shops.indexOf(process.shop)] = started;
      process.shop = started;
      this.watch(process, number);
    }
    process.condition = 'running';
  }

  async stopRedis(): Promise<void> {
    const { redisServer } = this.environment;
    if (!redisServer) throw new ConflictException('Redis is not ours to stop: unset REDIS_URL, and start again');
    await redisServer.process.kill();
  }

  /** On the same port, and empty, as after the restart of a Redis without persistence. */
  async startRedis(): Promise<void> {
    const { redisServer } = this.environment;
    if (!redisServer || redisServer.process.running) return;
    await redisServer.stop();
    this.environment.redisServer = await startRedisServer({ port: redisServer.port });
  }

  close(): void {
    for (const { link } of this.processes) link.close();
  }

  private async open(instances: number, backend: LockBackendName): Promise<void> {
    const before = this.processes;
    this.processes = [];
    this.backend = undefined;
    await Promise.all(this.environment.shops.splice(0).map((shop) => shop.process.stop()));
    for (const { link } of before) link.close();
    await this.environment.stage(instances, backend);
    const opened = await Promise.all(
      Array.from({ length: instances }, async (): Promise<Process> => {
        const link = new CuttableLink();
        return { link, shop: await this.start(link), condition: 'running' };
      }),
    );
    this.environment.shops.push(...opened.map(({ shop }) => shop));
    this.processes = opened;
    this.backend = backend;
    opened.forEach((process, index) => this.watch(process, index + 1));
  }

  /** The database is not behind the link: what is cut off is the way to the locks and to the cache. */
  private async start(link: CuttableLink): Promise<Shop> {
    const { REDIS_URL = '', LOCK_BACKEND_URL = '' } = this.environment.shopSettings;
    return this.environment.startShop({
      REDIS_URL: await link.through(REDIS_URL),
      LOCK_BACKEND_URL: await link.through(LOCK_BACKEND_URL),
    });
  }

  private watch(process: Process, number: number): void {
    const { shop } = process;
    void shop.process.exited.then(() => {
      if (process.shop !== shop || process.condition === 'dead' || !this.processes.includes(process)) return;
      process.condition = 'dead';
      this.changed(number);
    });
  }

  private inCondition(number: number, needed: ProcessState['condition'], wanted: string): Process {
    const process = this.process(number);
    if (process.condition === needed) return process;
    throw new ConflictException(`Process ${number} is ${process.condition}: only a running one can become ${wanted}`);
  }

  private process(number: number): Process {
    const process = this.processes[number - 1];
    if (process) return process;
    throw new NotFoundException(`No process ${number}: the shop has ${this.processes.length}`);
  }
}

const LOCAL = /127\.0\.0\.1:(\d+)/g;

/**
 * Connections to servers on this machine that can be cut like a network: nothing passes and nothing closes, until they
 * are joined again.
 */
class CuttableLink {
  private readonly servers = new Map<number, Server>();
  private readonly sockets = new Set<Socket>();
  private severed = false;

  /** The same text, with the address of a forwarder of this link instead of each address on this machine. */
  async through(text: string): Promise<string> {
    const ports = [...new Set([...text.matchAll(LOCAL)].map(([, port]) => Number(port)))];
    await Promise.all(ports.map((port) => this.forward(port)));
    return text.replaceAll(LOCAL, (_address, port) => `127.0.0.1:${this.portFor(Number(port))}`);
  }

  get separable(): boolean {
    return this.servers.size > 0;
  }

  cut(): void {
    this.severed = true;
    for (const socket of this.sockets) socket.pause();
  }

  join(): void {
    this.severed = false;
    for (const socket of this.sockets) socket.resume();
  }

  close(): void {
    for (const server of this.servers.values()) server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private async forward(port: number): Promise<void> {
    if (this.servers.has(port)) return;
    const server = createServer((near) => this.pair(near, connect({ host: '127.0.0.1', port })));
    this.servers.set(port, server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }

  private portFor(port: number): number {
    const { port: ours } = (this.servers.get(port) as Server).address() as AddressInfo;
    return ours;
  }

  private pair(near: Socket, far: Socket): void {
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.sockets.add(socket);
      socket.setNoDelay();
      socket.on('data', (bytes) => {
        if (!other.write(bytes)) socket.pause();
      });
      other.on('drain', () => {
        if (!this.severed) socket.resume();
      });
      socket.on('error', () => {});
      socket.on('close', () => {
        this.sockets.delete(socket);
        other.destroy();
      });
      if (this.severed) socket.pause();
    }
  }
}
