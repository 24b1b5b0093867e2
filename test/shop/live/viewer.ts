import type { LiveEvents } from '../../../sample-app/demo/live/live-state.js';
import { eventually } from '../../support/eventually.js';

/** A page without a browser: reads the server-sent events, and keeps the last data of each. */
export class Viewer implements Disposable {
  readonly seen: Partial<LiveEvents> = {};
  readonly ended: Promise<void>;
  private readonly closing = new AbortController();

  private constructor(response: Response, closing: AbortController) {
    this.closing = closing;
    this.ended = this.read(response).catch(() => {});
  }

  static async open(url: string): Promise<Viewer> {
    const closing = new AbortController();
    const response = await fetch(`${url}/events`, { signal: closing.signal });
    if (response.headers.get('content-type') !== 'text/event-stream') throw new Error('No stream of events');
    const viewer = new Viewer(response, closing);
    await eventually(() => viewer.seen.state !== undefined);
    return viewer;
  }

  get state(): LiveEvents['state'] {
    return this.seen.state as LiveEvents['state'];
  }

  get log(): string[] {
    return (this.seen.log ?? []).map(({ text }) => text);
  }

  /** Resolves once `matches` holds for what this has seen. */
  async until(matches: () => boolean | undefined): Promise<void> {
    await eventually(matches, { within: 60_000, every: 20 });
  }

  [Symbol.dispose](): void {
    this.closing.abort();
  }

  private async read(response: Response): Promise<void> {
    let rest = '';
    for await (const bytes of response.body as AsyncIterable<Uint8Array>) {
      rest += new TextDecoder().decode(bytes);
      const messages = rest.split('\n\n');
      rest = messages.pop() ?? '';
      for (const message of messages) {
        const [, event, data] = /^event: (\w+)\ndata: (.*)$/.exec(message) ?? [];
        if (event && data) Object.assign(this.seen, { [event]: JSON.parse(data) as unknown });
      }
    }
  }
}
