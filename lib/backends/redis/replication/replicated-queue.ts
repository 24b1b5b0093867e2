import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  Pending,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  RequeueRequest,
  TicketRequest,
  WaiterRequest,
} from '../../../contracts/lock-backend.js';
import type { Replicas } from './replicas.js';

type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** A queue whose grants count once enough replicas have them. One that they do not have is released. */
export class ReplicatedQueue implements LockQueue {
  constructor(
    private readonly queue: LockQueue,
    private readonly replicas: Replicas,
    private readonly release: (request: TicketRequest) => Pending<unknown>,
  ) {}

  listen(listener: QueueListener): Promise<void> {
    const { prefix, process } = listener;
    return this.queue.listen({
      prefix,
      process,
      onReconnect: () => listener.onReconnect(),
      onMessage: (message) => {
        if (message.kind === 'grant') void this.deliver(listener, message);
        else listener.onMessage(message);
      },
    });
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    this.queue.unlisten?.(listener);
  }

  async enqueue(request: EnqueueRequest): Promise<QueueAnswer> {
    return this.confirmed(request, await this.queue.enqueue(request));
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { readonly status: 'gone' }> {
    return this.confirmed(request, await this.queue.beat(request));
  }

  async requeue(
    request: RequeueRequest,
  ): Promise<QueueAnswer | { readonly status: 'not-owner'; readonly resent: boolean }> {
    return this.confirmed(request, await this.queue.requeue(request));
  }

  /** A grant that was not confirmed rejects: the caller of the backend then releases the ticket. */
  private async confirmed<A extends { readonly status: string }>(request: WaiterRequest, answer: A): Promise<A> {
    if (answer.status === 'granted') await this.replicas.confirm(request, [request.name]);
    return answer;
  }

  /** The ticket of a grant that was not confirmed is released, and its process asks again. */
  private async deliver(listener: QueueListener, message: GrantMessage): Promise<void> {
    const { prefix } = listener;
    const { name, ticket } = message;
    try {
      await this.replicas.confirm({ prefix }, [name]);
    } catch {
      // Without an answer the claim ends it.
      this.release({ prefix, names: [name], ticket }).then(
        () => {},
        () => {},
      );
      return;
    }
    listener.onMessage(message);
  }
}
