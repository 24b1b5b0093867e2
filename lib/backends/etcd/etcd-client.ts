import { EtcdEndpoint, type StreamListener, EtcdRefusal, EtcdSilence, EtcdUnavailable } from './etcd-endpoint.js';
import type { EtcdSettings } from './etcd-options.js';

/** An answer of the cluster. */
interface Answered<Answer> {
  readonly answer: Answer;
  /** Whether the request was sent more than once, and an earlier send may have been carried out. */
  readonly resent: boolean;
}

/**
 * One cluster by several endpoints: requests go to one of them until it fails, and then to the next. Every request may
 * be sent more than once.
 */
export class EtcdClient {
  readonly endpoints: readonly EtcdEndpoint[];
  private closed = false;
  private current = 0;
  private readonly login: EtcdLogin | undefined;
  private readonly limit: number;
  private readonly doubtListeners: (() => void)[] = [];

  constructor({ endpoints, tls, username, password, callTimeout }: EtcdSettings) {
    this.endpoints = endpoints.map((url) => new EtcdEndpoint(url, tls));
    this.limit = callTimeout;
    if (username === undefined) return;
    this.login = new EtcdLogin({ name: username, password: password ?? '' }, callTimeout, endpoints.length > 1);
  }

  /**
   * @throws EtcdRefusal
   * @throws EtcdUnavailable when no endpoint serves the request
   */
  async call<Answer>(path: string, body: object): Promise<Answered<Answer>> {
    const text = JSON.stringify(body);
    let resent = false;
    let uncertain = false;
    // One more than there are endpoints: a server may have closed a connection that was idle.
    for (let tries = 0; tries <= this.endpoints.length; tries++) {
      if (this.closed) throw new Error('The backend is closed');
      const endpoint = this.endpoint;
      resent = uncertain;
      try {
        const answer = await this.post<Answer>(endpoint, path, text);
        endpoint.failure = undefined;
        return { answer, resent };
      } catch (error) {
        if (isOfEndpoint(error)) {
          if (error.isUncertain) {
            uncertain = true;
            for (const listener of this.doubtListeners) listener();
          }
          this.leave(endpoint, error);
        } else {
          if (error instanceof EtcdRefusal) error.resent = uncertain;
          throw error;
        }
      }
    }
    throw new EtcdUnavailable(this.failures() ?? 'no endpoint answers');
  }

  /** Opens a stream at the endpoint that answers now. Returns what closes it. */
  async stream(path: string, body: object, listener: StreamListener): Promise<() => void> {
    const endpoint = this.endpoint;
    const token = await this.login?.current(endpoint);
    if (this.closed) throw new Error('The backend is closed');
    const onEnd = (why: Error) => {
      // etcd refuses the watch of an old token as if the user had no right to it: the next one has a new token.
      if (token !== undefined && !(why instanceof EtcdSilence)) this.login?.forget(token);
      listener.onEnd(why);
    };
    return endpoint.stream(path, JSON.stringify(body), token, { ...listener, onEnd });
  }

  /** Asks the endpoints that failed whether they answer again. */
  async askFailed(): Promise<void> {
    const failed = this.endpoints.filter(({ failure }) => failure !== undefined);
    await Promise.all(
      failed.map(async (endpoint) => {
        try {
          await this.ask(endpoint, '/v3/maintenance/status');
          endpoint.failure = undefined;
        } catch (error) {
          endpoint.failure = error as Error;
        }
      }),
    );
  }

  /** Asks one endpoint, and no other. */
  ask<Answer>(endpoint: EtcdEndpoint, path: string): Promise<Answer> {
    return this.post(endpoint, path, '{}');
  }

  /** Calls `listener` when a request got no answer: the cluster may carry it out later. */
  whenInDoubt(listener: () => void): void {
    this.doubtListeners.push(listener);
  }

  /** The endpoints whose last request failed, each with the cause; `undefined` when there is none. */
  failures(): string | undefined {
    const failed = this.endpoints.filter(({ failure }) => failure !== undefined);
    if (failed.length === 0) return undefined;
    return failed.map(({ url, failure }) => `${url}: ${failure?.message}`).join('; ');
  }

  close(): void {
    this.closed = true;
    for (const endpoint of this.endpoints) endpoint.close();
  }

  /** With another token if etcd does not accept that of the user any more. */
  private async post<Answer>(endpoint: EtcdEndpoint, path: string, text: string): Promise<Answer> {
    for (let renewed = false; ; renewed = true) {
      const token = await this.login?.current(endpoint);
      try {
        return await endpoint.post<Answer>(path, text, token, this.limit);
      } catch (error) {
        if (!(error instanceof EtcdRefusal && error.isOfToken) || token === undefined || renewed) throw error;
        this.login?.forget(token);
      }
    }
  }

  private get endpoint(): EtcdEndpoint {
    return this.endpoints[this.current] as EtcdEndpoint;
  }

  private leave(endpoint: EtcdEndpoint, failure: Error): void {
    endpoint.failure = failure;
    if (endpoint !== this.endpoint) return;
    this.current = (this.current + 1) % this.endpoints.length;
    endpoint.endStreams(failure);
  }
}

/** A login takes longer than other requests (in their time limits), because etcd hashes passwords slowly on purpose. */
const PATIENCE = 5;

/**
 * The token that stands for the user in every request. etcd ends it after five minutes without use, and at a restart.
 */
class EtcdLogin {
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
      const { token } = await endpoint.post<{ token: unknown }>(path, body, undefined, PATIENCE * this.callTimeout);
      if (typeof token !== 'string' || token === '')
        throw new Error(`${endpoint.url} answered a login without a token`);
      this.token = token;
      for (const arrived of this.waiting) arrived(token);
      this.waiting.clear();
    } finally {
      this.pending.delete(endpoint);
    }
  }
}

function isOfEndpoint(error: unknown): error is EtcdSilence | EtcdRefusal {
  return error instanceof EtcdSilence || (error instanceof EtcdRefusal && error.isOfMember);
}
