import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/**
 * An address that leads to one server and later to another, as a DNS name or a load balancer does. Open connections
 * stay.
 */
export class RedirectableEndpoint {
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly listener: Server,
    private target: number,
  ) {}

  static async start(target: number): Promise<RedirectableEndpoint> {
    const listener = createServer({ noDelay: true });
    const endpoint = new RedirectableEndpoint(listener, target);
    listener.on('connection', (client) => endpoint.link(client));
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', () => resolve()));
    return endpoint;
  }

  get port(): number {
    return (this.listener.address() as AddressInfo).port;
  }

  leadTo(target: number): void {
    this.target = target;
  }

  stop(): void {
    this.listener.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private link(client: Socket): void {
    const server = connect({ host: '127.0.0.1', port: this.target, noDelay: true });
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
  }
}
