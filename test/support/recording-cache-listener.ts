import type { CacheListener } from 'nest-redis-lock/backend';

/** Records messages in the order of their arrival. */
export class RecordingCacheListener implements CacheListener {
  readonly heard: string[] = [];

  onInvalidated(key: string): void {
    this.heard.push(`invalidated ${key}`);
  }
  onLoadEnded(key: string): void {
    this.heard.push(`ended ${key}`);
  }
  onTagInvalidated(tag: string): void {
    this.heard.push(`tag ${tag}`);
  }
  onPrefixInvalidated(prefix: string): void {
    this.heard.push(`prefix ${prefix}`);
  }
  onDeletionScheduled(delay: number): void {
    this.heard.push(`scheduled ${delay}`);
  }
  onDisconnected(): void {
    this.heard.push('disconnected');
  }
  onConnected(): void {
    this.heard.push('connected');
  }
}
