import { backoff } from '../../../timing/backoff.js';
import type { EtcdClient } from '../client/etcd-client.js';
import { encode, type Header, type KeyValue } from '../client/etcd-messages.js';

interface WatchMessage {
  readonly header?: Header;
  readonly created?: boolean;
  readonly canceled?: boolean;
  readonly cancel_reason?: string;
  /** Present when etcd no longer has the revision at which the watch was to begin. */
  readonly compact_revision?: string;
  readonly events?: readonly { readonly type?: string; readonly kv: KeyValue }[];
}

export interface MailListener {
  onMail(kv: KeyValue): void;
  /** The watch had ended and is open again. */
  onReconnect(): void;
  /** Messages are lost. */
  onGap(): void;
}

/**
 * The watch of the mailbox of one process. It begins again where it has ended, so that no message is lost, unless etcd
 * has compacted the revisions since.
 */
export class EtcdMailbox {
  private next: number | undefined;
  private closeStream: (() => void) | undefined;
  private retry: NodeJS.Timeout | undefined;
  private failures = 0;
  private closed = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly key: string,
    private readonly listener: MailListener,
  ) {}

  /** Resolves when messages from now on arrive. */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      const range = { key: encode(this.key), ...(this.next !== undefined && { start_revision: String(this.next) }) };
      const onMessage = (message: unknown) => this.read(message as WatchMessage, resolve);
      const onEnd = (why: Error) => {
        reject(why);
        this.openAgain();
      };
      const body = { create_request: range };
      this.client.stream('/v3/watch', body, { onMessage, onEnd }).then((close) => {
        if (this.closed) close();
        else this.closeStream = close;
      }, onEnd);
    });
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retry);
    this.closeStream?.();
  }

  private read(
    { header, created, canceled, cancel_reason: why, events, ...rest }: WatchMessage,
    opened: () => void,
  ): void {
    if (canceled) {
      if (rest.compact_revision !== undefined) {
        this.next = undefined;
        this.listener.onGap();
      }
      throw new Error(why ?? 'etcd has cancelled the watch');
    }
    if (created) {
      this.failures = 0;
      if (header) this.next ??= Number(header.revision) + 1;
      opened();
    }
    for (const { type, kv } of events ?? []) {
      this.next = Number(kv.mod_revision) + 1;
      if (type !== 'DELETE') this.listener.onMail(kv);
    }
  }

  private openAgain(): void {
    if (this.closed || this.retry) return;
    this.retry = setTimeout(() => {
      this.retry = undefined;
      this.open().then(
        () => this.listener.onReconnect(),
        () => {},
      );
    }, backoff(this.failures)).unref();
    this.failures += 1;
  }
}
