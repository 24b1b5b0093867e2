import type { Pending } from '../../contracts/pending.js';
import { BatchedCall } from './batched-call.js';
import { Gathering, type Lanes } from './gathering.js';

/** Sends requests together; calls `answered` with the answer of each, in order, or an `Error` if that one failed. */
export type SendTogether<Request, Answer> = (
  requests: readonly Request[],
  answered: (answers: readonly (Answer | Error)[]) => void,
  failed: (error: unknown) => void,
) => void;

/** Sends the requests of one turn of the event loop together: one statement or message for many calls. */
export class TurnBatch<Request, Answer> {
  private requests: Request[] = [];
  private calls: BatchedCall<Answer>[] = [];
  private readonly gathering: Gathering;

  /**
   * @param most the most requests that are sent together
   */
  constructor(
    private readonly send: SendTogether<Request, Answer>,
    private readonly most: number,
    lanes?: Lanes,
  ) {
    this.gathering = new Gathering(() => this.flush(), lanes);
  }

  add(request: Request): Pending<Answer> {
    const call = new BatchedCall((answer) => answer as Answer);
    this.requests.push(request);
    this.calls.push(call);
    this.gathering.added(this.calls.length >= this.most);
    return call;
  }

  private flush(): void {
    const { requests, calls } = this;
    if (calls.length === 0) return;
    this.requests = [];
    this.calls = [];
    this.gathering.begun(requests.length);
    this.send(
      requests,
      (answers) => {
        this.gathering.ended(this.calls.length > 0);
        for (const [index, call] of calls.entries()) call.settle(answers[index]);
      },
      (error) => {
        this.gathering.ended(this.calls.length > 0);
        for (const call of calls) call.fail(error);
      },
    );
  }
}
