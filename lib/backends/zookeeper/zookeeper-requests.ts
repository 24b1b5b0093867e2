import { ACL, CreateMode, Exception, Id, Permission, type Client, type Event, type Stat } from 'node-zookeeper-client';
import type { ClientInternals } from './client-internals.js';

/** The children of a node, as they were at one moment. */
export interface Children {
  readonly names: readonly string[];
  readonly stat: Stat;
}

type Failure = Error | Exception | null;
type Settle<T> = (error: Failure, value: T) => void;

/** After these the server has not answered. */
export const UNANSWERED: readonly number[] = [
  Exception.CONNECTION_LOSS,
  Exception.SESSION_EXPIRED,
  Exception.AUTH_FAILED,
];

/**
 * The requests of one session. The server carries them out in the order in which they are sent, so that a read sees the
 * writes before it: several can be sent without waiting.
 *
 * A server answers reads by itself, also for a while after it was cut off from the others. Only the answer to a write,
 * on which a majority of the servers has agreed, proves that the session lives.
 */
export class ZooKeeperRequests {
  private readonly underWay = new Set<(error: unknown) => void>();
  private readonly acls: ACL[];

  /**
   * @param answered is called for each answer, with when (monotonic, ms) it was asked for, and whether it is a proof
   */
  constructor(
    private readonly client: Client,
    private readonly internals: Pick<ClientInternals, 'gatherRequests'>,
    owned: boolean,
    private readonly answered: (sentAt: number, proof: boolean) => void,
  ) {
    this.acls = [new ACL(Permission.ALL, owned ? new Id('auth', '') : new Id('world', 'anyone'))];
  }

  createPersistent(path: string): Promise<string> {
    return this.write((settle) => {
      this.client.create(path, Buffer.alloc(0), this.acls, CreateMode.PERSISTENT, settle);
    });
  }

  /** Creates a node that ends with the session, and answers its path. */
  createEphemeral(path: string, data: Buffer): Promise<string> {
    return this.write((settle) => {
      this.client.create(path, data, this.acls, CreateMode.EPHEMERAL_SEQUENTIAL, settle);
    });
  }

  /** Removes a node and creates another in one step, and answers its path. */
  replace(path: string, by: string, data: Buffer): Promise<string> {
    const step = this.client
      .transaction()
      .remove(path, -1)
      .create(by, data, this.acls, CreateMode.EPHEMERAL_SEQUENTIAL);
    return this.write((settle) => {
      step.commit((error: Failure, results: { path: string }[]) => settle(error, results?.[1]?.path ?? ''));
    });
  }

  /** @param version of the data; -1 for any */
  remove(path: string, version = -1): Promise<void> {
    return this.write((settle) => this.client.remove(path, version, (error) => settle(error, undefined)));
  }

  children(path: string, watcher?: (event: Event) => void): Promise<Children> {
    return this.send((settle) => {
      const done = (error: Failure, names: string[], stat: Stat) => settle(error, { names, stat });
      if (watcher) this.client.getChildren(path, watcher, done);
      else this.client.getChildren(path, done);
    });
  }

  data(path: string): Promise<{ data: Buffer | undefined; stat: Stat }> {
    return this.send((settle) => {
      this.client.getData(path, (error, data, stat) => settle(error, { data, stat }));
    });
  }

  setData(path: string, data: Buffer): Promise<Stat> {
    return this.write((settle) => this.client.setData(path, data, settle));
  }

  /** Writes to two nodes in one step, and answers the state of the first. */
  setBoth(path: string, data: Buffer, other: string, ofOther: Buffer): Promise<Stat> {
    const step = this.client.transaction().setData(path, data, -1).setData(other, ofOther, -1);
    return this.write((settle) => {
      step.commit((error: Failure, results: [{ stat: Stat }]) => settle(error, results?.[0].stat));
    });
  }

  exists(path: string): Promise<boolean> {
    return this.send((settle) => this.client.exists(path, (error, stat) => settle(error, Boolean(stat))));
  }

  /**
   * A write that changes nothing. The reads that follow see all writes that the leader got before it, also over other
   * connections.
   */
  async barrier(path: string): Promise<void> {
    const step = this.client.transaction().check(path, -1);
    await this.write<void>((settle) => step.commit((error) => settle(error, undefined))).catch(
      unless(Exception.NO_NODE),
    );
  }

  /** Fails all requests that are not answered. */
  failAll(error: unknown): void {
    const failing = [...this.underWay];
    this.underWay.clear();
    for (const fail of failing) fail(error);
  }

  private write<T>(issue: (settle: Settle<T>) => void): Promise<T> {
    return this.send(issue, true);
  }

  private send<T>(issue: (settle: Settle<T>) => void, proof = false): Promise<T> {
    return new Promise((resolve, reject) => {
      const sentAt = performance.now();
      this.internals.gatherRequests(this.underWay.size > 0);
      this.underWay.add(reject);
      issue((error, value) => {
        this.underWay.delete(reject);
        if (!error || !UNANSWERED.includes(codeOf(error))) this.answered(sentAt, proof);
        if (error) reject(error);
        else resolve(value);
      });
    });
  }
}

/** The code of an error of ZooKeeper; `OK` for every other one. */
export function codeOf(error: unknown): number {
  return error instanceof Exception ? error.code : Exception.OK;
}

/** Throws each error but this one. */
export function unless(code: number): (error: unknown) => void {
  return (error) => {
    if (codeOf(error) !== code) throw error;
  };
}
