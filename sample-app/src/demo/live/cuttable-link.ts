import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

const LOCAL = /127\.0\.0\.1:(\d+)/g;

/**
 * Connections to servers on this machine that can be cut like a network: nothing passes and nothing closes, until they
 * are joined again.
 */
export class CuttableLink {
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
