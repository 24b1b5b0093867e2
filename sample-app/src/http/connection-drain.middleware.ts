import type { ServerResponse } from 'node:http';
import { Injectable, type BeforeApplicationShutdown, type NestMiddleware } from '@nestjs/common';

/**
 * From the signal to end on, every answer tells its client to close the connection. A client that keeps sending on an
 * open connection would otherwise keep the shop from ever ending, and refusing its requests would lose orders in
 * flight.
 */
@Injectable()
export class ConnectionDrainMiddleware implements NestMiddleware, BeforeApplicationShutdown {
  private readonly unanswered = new Set<ServerResponse>();
  private ending = false;

  use(_request: unknown, response: ServerResponse, next: () => void): void {
    this.unanswered.add(response);
    response.once('close', () => this.unanswered.delete(response));
    if (this.ending) letGo(response);
    next();
  }

  beforeApplicationShutdown(): void {
    this.ending = true;
    this.unanswered.forEach(letGo);
  }
}

function letGo(response: ServerResponse): void {
  if (!response.headersSent) response.setHeader('Connection', 'close');
}
