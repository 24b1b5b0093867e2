/** Waits for the end of another process's load. */
interface Waiter {
  wake(): void;
}

/** A waiter checks after this time (ms), and then at doubled intervals, in case the message was lost. */
const FIRST_LOOK = 25;
const LONGEST_LOOK = 250;

/** The waiters of this process for loads of others, by key. */
export class LoadWaiters {
  private readonly byKey = new Map<string, Set<Waiter>>();

  /** Starts to listen. Call it before asking for the lease, so that no message is missed. */
  expect(key: string): LoadWait {
    return new LoadWait(this, key);
  }

  /** @internal for `LoadWait` */
  add(key: string, waiter: Waiter): void {
    const waiters = this.byKey.get(key);
    if (waiters) waiters.add(waiter);
    else this.byKey.set(key, new Set([waiter]));
  }

  /** @internal for `LoadWait` */
  remove(key: string, waiter: Waiter): void {
    const waiters = this.byKey.get(key);
    waiters?.delete(waiter);
    if (waiters?.size === 0) this.byKey.delete(key);
  }

  wake(key: string): void {
    for (const waiter of this.byKey.get(key) ?? []) waiter.wake();
  }

  wakeMatching(matches: (key: string) => boolean): void {
    for (const [key, waiters] of this.byKey) if (matches(key)) for (const waiter of waiters) waiter.wake();
  }
}

export class LoadWait implements Waiter {
  private woken = false;
  private look = FIRST_LOOK;
  private onWake: (() => void) | undefined;

  constructor(
    private readonly waiters: LoadWaiters,
    private readonly key: string,
  ) {
    waiters.add(key, this);
  }

  wake(): void {
    this.woken = true;
    this.onWake?.();
  }

  /** Resolves when the load ends, after `most` ms, or when it is time to check for a lost message. */
  async untilWoken(most: number): Promise<void> {
    if (!this.woken) {
      const delay = Math.min(most, this.look * (0.75 + Math.random() / 2));
      this.look = Math.min(this.look * 2, LONGEST_LOOK);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.max(1, Math.ceil(delay)));
        this.onWake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.onWake = undefined;
    }
    this.woken = false;
  }

  end(): void {
    this.waiters.remove(this.key, this);
  }
}
