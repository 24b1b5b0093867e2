import type { Dispatcher } from 'undici';

/** One request to a member, and its answer. */
export class EtcdExchange implements Dispatcher.DispatchHandler {
  private controller: Dispatcher.DispatchController | undefined;
  private status = 0;
  private readonly parts: Buffer[] = [];
  private givenUp: Error | undefined;

  constructor(
    private readonly answered: (text: string, status: number) => void,
    /** `sent`: the server may have carried the request out. May be called again. */
    private readonly failed: (error: Error, sent: boolean) => void,
  ) {}

  /** Waits no longer, and sends nothing any more. */
  giveUp(why: Error): void {
    this.givenUp = why;
    this.controller?.abort(why);
    this.failed(why, this.controller !== undefined);
  }

  /** The request is about to be sent: there is a connection for it. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.givenUp) controller.abort(this.givenUp);
    else this.controller = controller;
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number): void {
    this.status = status;
  }

  onResponseData(_: Dispatcher.DispatchController, part: Buffer): void {
    this.parts.push(part);
  }

  onResponseEnd(): void {
    const [only] = this.parts;
    const body = this.parts.length === 1 && only ? only : Buffer.concat(this.parts);
    this.answered(body.toString(), this.status);
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.failed(error, this.controller !== undefined);
  }
}
