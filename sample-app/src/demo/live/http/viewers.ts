import type { ServerResponse } from 'node:http';
import type { LiveEvents } from '../live-state.js';

/** Milliseconds after which a page connects again. */
const RETRY = 500;

/**
 * The open pages, as receivers of server-sent events. A page that does not read (its tab is suspended) misses events
 * instead of filling memory, and gets the present data when it reads again.
 */
export class Viewers {
  private readonly reading = new Set<ServerResponse>();
  private readonly behind = new Set<ServerResponse>();

  constructor(private readonly present: () => LiveEvents) {}

  get count(): number {
    return this.reading.size;
  }

  add(response: ServerResponse): void {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    response.write(`retry: ${RETRY}\n\n`);
    this.reading.add(response);
    response.on('drain', () => {
      if (this.behind.delete(response)) response.write(this.everything());
    });
    response.once('close', () => {
      this.reading.delete(response);
      this.behind.delete(response);
      this.send('state');
    });
    response.write(this.everything());
    this.send('state');
  }

  send(event: keyof LiveEvents): void {
    if (this.reading.size === 0) return;
    const text = textOf(event, this.present());
    for (const response of this.reading) {
      if (response.writableNeedDrain) this.behind.add(response);
      else response.write(text);
    }
  }

  close(): void {
    for (const response of this.reading) response.end();
  }

  private everything(): string {
    const present = this.present();
    return (['course', 'results', 'log', 'state'] as const).map((event) => textOf(event, present)).join('');
  }
}

function textOf(event: keyof LiveEvents, present: LiveEvents): string {
  return `event: ${event}\ndata: ${JSON.stringify(present[event])}\n\n`;
}
