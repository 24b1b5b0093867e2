import type { EtcdEndpoint } from './etcd-endpoint.js';
import { EtcdSilence } from './etcd-failures.js';

/** A login takes longer than other requests (in their time limits), because etcd hashes passwords slowly on purpose. */
const PATIENCE = 5;

/**
 * The token that stands for the user in every request. etcd ends it after five minutes without use, and at a restart.
 */
export class EtcdLogin {
  private token: string | undefined;
  /** Logins under way: an endpoint that does not answer must not hold up the others. */
  private readonly pending = new Map<EtcdEndpoint, Promise<void>>();
  private readonly waiting = new Set<(token: string) => void>();

  constructor(
    private readonly user: { readonly name: string; readonly password: string },
    private readonly callTimeout: number,
    /** Whether another endpoint can be asked. */
    private readonly hasAlternative: boolean,
  ) {}

  /**
   * The token that this endpoint brings, or another one in the meantime.
   *
   * @throws EtcdRefusal when etcd does not accept the password
   * @throws EtcdSilence when another endpoint should be asked; a token that comes later is used all the same
   */
  current(endpoint: EtcdEndpoint): Promise<string> {
    if (this.token !== undefined) return Promise.resolve(this.token);
    const login = this.pending.get(endpoint) ?? this.authenticate(endpoint);
    this.pending.set(endpoint, login);
    return new Promise((resolve, reject) => {
      const limit = this.hasAlternative ? this.callTimeout : PATIENCE * this.callTimeout;
      const timer = setTimeout(() => {
        this.waiting.delete(arrived);
        reject(new EtcdSilence(false, new Error(`no answer within ${limit} ms`)));
      }, limit).unref();
      const arrived = (token: string) => {
        clearTimeout(timer);
        resolve(token);
      };
      this.waiting.add(arrived);
      login.catch((error: Error) => {
        clearTimeout(timer);
        this.waiting.delete(arrived);
        reject(error);
      });
    });
  }

  /** The next request gets a new token, unless another one has brought it already. */
  forget(refused: string): void {
    if (this.token === refused) this.token = undefined;
  }

  private async authenticate(endpoint: EtcdEndpoint): Promise<void> {
    try {
      const path = '/v3/auth/authenticate';
      const body = JSON.stringify(this.user);
      const { token } = await endpoint.post<{ token: string }>(path, body, undefined, PATIENCE * this.callTimeout);
      this.token = token;
      for (const arrived of this.waiting) arrived(token);
      this.waiting.clear();
    } finally {
      this.pending.delete(endpoint);
    }
  }
}
