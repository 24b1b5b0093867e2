import { backoff } from '../../timing/clock.js';
import type { EtcdClient } from './etcd-client.js';
import { encode, revisionIn, type Header, type KeyValue } from './etcd-transactions.js';

interface WatchMessage {
  readonly header?: Header;
  readonly created?: boolean;
  readonly canceled?: boolean;
  readonly cancel_reason?: string;
  /** Present when etcd no longer has the revision at which the watch was to begin. */
  readonly compact_revision?: string;
  readonly events?: readonly { readonly type?: string; readonly kv: KeyValue }[];
}

interface WatchListener {
  onPut?(kv: KeyValue): void;
  onDelete?(): void;
  /** The watch is open, the first time or again. */
  onOpen?(): void;
  /** The watch has ended, or could not be opened. */
  onEnd?(): void;
  /** The watch had ended and is open again. */
  onReconnect?(): void;
  /** What happened to the key is lost. */
  onGap?(): void;
}

/**
 * A watch of one key. It begins again where it has ended, so that nothing is lost, unless etcd has compacted the
 * revisions since, or has lost them.
 */
export class EtcdWatch {
  private next: number | undefined;
  private closeStream: (() => void) | undefined;
  private retry: NodeJS.Timeout | undefined;
  private failures = 0;
  private closed = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly key: string,
    private readonly listener: WatchListener,
  ) {}

  /** Resolves when it tells what happens from now on. */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      const range = { key: encode(this.key), ...(this.next !== undefined && { start_revision: String(this.next) }) };
      const onMessage = (message: unknown) => this.read(message as WatchMessage, resolve);
      const onEnd = (why: Error) => {
        reject(why);
        if (!this.closed) this.listener.onEnd?.();
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
        this.listener.onGap?.();
      }
      throw new Error(why ?? 'etcd has cancelled the watch');
    }
    if (created) {
      const present = header ? revisionIn(header) + 1 : 1;
      if (this.next !== undefined && present < this.next - 1) {
        this.next = undefined;
        this.listener.onGap?.();
        throw new Error('etcd has lost the revisions of the watch');
      }
      this.failures = 0;
      if (header) this.next ??= present;
      opened();
      this.listener.onOpen?.();
    }
    for (const { type, kv } of events ?? []) {
      if (kv.key !== encode(this.key)) throw new Error('etcd told of another key than the watch has');
      this.next = revisionIn({ revision: kv.mod_revision }) + 1;
      if (type === 'DELETE') this.listener.onDelete?.();
      else this.listener.onPut?.(kv);
    }
  }

  private openAgain(): void {
    if (this.closed || this.retry) return;
    this.retry = setTimeout(() => {
      this.retry = undefined;
      this.open().then(
        () => this.listener.onReconnect?.(),
        () => {},
      );
    }, backoff(this.failures)).unref();
    this.failures += 1;
  }
}
