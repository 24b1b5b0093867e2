// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { OnlyLeader, ScheduledLock } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

const SCHEDULE = { atMostFor: '10m', atLeastFor: '30s' } as const;

declare const untold: any;

export class Accepted {
  @ScheduledLock('nightly', SCHEDULE)
  async job(): Promise<void> {}

  @ScheduledLock('nightly', { atMostFor: 600_000, atLeastFor: 0, backend: 'north' })
  async maybe(): Promise<number | undefined> {
    return 1;
  }

  @OnlyLeader('restock')
  async led(): Promise<void> {}

  @OnlyLeader('restock', { elsewhere: 'throw', lease: '5s' })
  async thrown(): Promise<number> {
    return 1;
  }

  @OnlyLeader('restock', untold)
  async withUntoldOptions(): Promise<number> {
    return 1;
  }
}

export class Refused {
  // @ts-expect-error a sync method would become async
  @ScheduledLock('nightly', SCHEDULE)
  sync(): void {}

  // @ts-expect-error the name is fixed
  @ScheduledLock('nightly:<0>', SCHEDULE)
  async named(_tenant: string): Promise<void> {}

  // @ts-expect-error a skipped run resolves to undefined
  @ScheduledLock('nightly', SCHEDULE)
  async result(): Promise<number> {
    return 1;
  }

  // @ts-expect-error both durations are needed
  @ScheduledLock('nightly', { atMostFor: '10m' })
  async half(): Promise<void> {}

  // @ts-expect-error an Observable begins when it is subscribed to
  @ScheduledLock('nightly', SCHEDULE)
  stream(): Observable<void> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error a skipped call resolves to undefined
  @OnlyLeader('restock')
  async led(): Promise<number> {
    return 1;
  }

  // @ts-expect-error callbacks belong to LeaderElection.join
  @OnlyLeader('restock', { onElected: () => {} })
  async callback(): Promise<void> {}

  // @ts-expect-error the name is fixed
  @OnlyLeader('restock:<#0>')
  async ledNamed(_shop: object): Promise<void> {}

  // @ts-expect-error a sync method would become async
  @OnlyLeader('restock')
  ledSync(): void {}
}
