import { Agent, request, type ClientRequest } from 'node:http';

/** The answer of a shop. */
export interface Reply {
  readonly status: number;
  readonly body: string;
}

/** Sends requests over connections that stay open. */
export class OrderClient implements Disposable {
  private readonly agent = new Agent({ keepAlive: true });

  /** Rejects when the connection breaks, or with the reason of the signal. */
  async post(url: string, body: object, signal: AbortSignal): Promise<Reply> {
    try {
      return await this.send(url, JSON.stringify(body), signal);
    } catch (error) {
      // The shop closed an idle connection just when it was used again: the request has not arrived.
      if (!(error instanceof StaleConnectionError)) throw error;
      return this.send(url, JSON.stringify(body), signal);
    }
  }

  [Symbol.dispose](): void {
    this.agent.destroy();
  }

  private send(url: string, text: string, signal: AbortSignal): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const sent: ClientRequest = request(url, { method: 'POST', headers, agent: this.agent, signal }, (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (part: string) => (body += part));
        response.once('end', () => resolve({ status: response.statusCode ?? 0, body }));
        response.once('error', reject);
      });
      sent.once('error', (error: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason as Error);
        else reject(sent.reusedSocket && error.code === 'ECONNRESET' ? new StaleConnectionError() : error);
      });
      sent.end(text);
    });
  }
}

class StaleConnectionError extends Error {}
