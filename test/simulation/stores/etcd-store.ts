// etcd in the simulated world. The library's own endpoint of etcd is replaced: its requests and streams are connections
// of the world, to one member. All above it is the library's.

import type * as Endpoints from '../../../lib/backends/etcd/etcd-endpoint.js';
import type * as Backend from '../../../lib/backends/etcd/etcd-lock-backend.js';
import type { LockBackend } from '../../../lib/contracts/lock-backend.js';
import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';
import type { World } from '../world.js';
import { EtcdModel, Refused } from './etcd-model.js';
import type { Load } from './index.js';
import { RequestLink } from './request-link.js';

/** Whole seconds, as etcd needs them (ms). */
export const SESSION = 3_000;
/** How often etcd looks for leases whose time is over (ms). */
const EXPIRY = 500;

/** Where the requests of a process go. */
interface Place {
  readonly process: SimulatedProcess;
  readonly server: Server;
  readonly member: Member;
}

/** By the URL that each process has for itself. */
const places = new Map<string, Place>();
const members = new WeakMap<World, Member>();
let urls = 0;

export async function etcdStore(load: Load): Promise<(process: SimulatedProcess, server: Server) => LockBackend> {
  const { etcd } = await load<typeof Backend>('backends/etcd/etcd-lock-backend.js');
  const module = await load<typeof Endpoints>('backends/etcd/etcd-endpoint.js');
  replaceEndpoint(module);
  return (process, server) => {
    const member = members.get(server.world) ?? new Member(server);
    if (!members.has(server.world)) places.clear();
    members.set(server.world, member);
    const url = `http://etcd-${++urls}:2379`;
    places.set(url, { process, server, member });
    return etcd({ endpoints: url, ttl: SESSION });
  };
}

/** The one member, which is as empty as the server of the schedule after it has lost its data. */
class Member {
  private readonly model: EtcdModel;
  private losses = 0;

  constructor(private readonly server: Server) {
    const { world } = server;
    this.model = new EtcdModel(() => world.now);
    world.every(EXPIRY, () => this.model.expire());
  }

  get present(): EtcdModel {
    const { length } = this.server.losses;
    if (length > this.losses) this.model.reset();
    this.losses = length;
    return this.model;
  }
}

function replaceEndpoint({ EtcdEndpoint, EtcdRefusal, EtcdSilence }: typeof Endpoints): void {
  const links = new WeakMap<object, Map<RequestLink, Endpoints.StreamListener | undefined>>();
  const linksOf = (endpoint: object) => {
    const known = links.get(endpoint) ?? new Map<RequestLink, Endpoints.StreamListener | undefined>();
    links.set(endpoint, known);
    return known;
  };
  /** The connection for requests that is open, or another one. */
  const connection = (
    endpoint: Endpoints.EtcdEndpoint,
    listener?: Endpoints.StreamListener,
  ): RequestLink | undefined => {
    const { process, server } = places.get(endpoint.url) as Place;
    const all = linksOf(endpoint);
    const present = listener ? undefined : [...all].find(([, each]) => each === undefined)?.[0];
    if (present) return present;
    if (process.network.until > process.world.now) return undefined;
    const link: RequestLink = new RequestLink(process, server, (why) => {
      if (all.delete(link)) listener?.onEnd(new EtcdSilence(true, why));
    });
    all.set(link, listener);
    return link;
  };

  Object.assign(EtcdEndpoint.prototype, {
    post(this: Endpoints.EtcdEndpoint, path: string, body: string, _token: undefined, limit: number) {
      return new Promise((resolve, reject) => {
        const link = connection(this);
        if (!link) return reject(new EtcdSilence(false, new Error('connect ECONNREFUSED')));
        const { member } = places.get(this.url) as Place;
        const silence = new EtcdSilence(true, new Error(`no answer within ${limit} ms`));
        // As a request that is aborted: its connection is not used again.
        const giveUp = () => {
          reject(silence);
          linksOf(this).delete(link);
          link.end(silence);
        };
        const timer = setTimeout(giveUp, limit);
        link.request(
          () => {
            link.note(() => `${path} ${body}`);
            try {
              return member.present.call(path, JSON.parse(body) as object);
            } catch (error) {
              if (error instanceof Refused) return error;
              throw error;
            }
          },
          (answer) => {
            clearTimeout(timer);
            if (answer instanceof Refused) reject(new EtcdRefusal(answer.message, answer.code));
            else resolve(answer);
          },
          (error, sent) => {
            clearTimeout(timer);
            reject(new EtcdSilence(sent, error));
          },
        );
        return undefined;
      });
    },

    stream(
      this: Endpoints.EtcdEndpoint,
      _path: string,
      body: string,
      _token: undefined,
      listener: Endpoints.StreamListener,
    ) {
      const link = connection(this, listener);
      const { member } = places.get(this.url) as Place;
      if (!link) {
        setTimeout(() => listener.onEnd(new EtcdSilence(false, new Error('connect ECONNREFUSED'))), 1);
        return () => {};
      }
      const { create_request: range } = JSON.parse(body) as {
        create_request: { key: string; start_revision?: string };
      };
      const close = () => {
        linksOf(this).delete(link);
        link.end(new Error('closed'));
      };
      const onMessage = (message: object) => {
        try {
          listener.onMessage(message);
        } catch (error) {
          close();
          listener.onEnd(error as Error);
        }
      };
      link.request(
        () => member.present.watch(range, (message) => link.tell(() => linksOf(this).has(link) && onMessage(message))),
        () => {},
        () => {},
      );
      return close;
    },

    endStreams(this: Endpoints.EtcdEndpoint, why: Error) {
      for (const [link, listener] of linksOf(this)) {
        if (!listener) continue;
        linksOf(this).delete(link);
        link.end(why);
        listener.onEnd(why);
      }
    },

    close(this: Endpoints.EtcdEndpoint) {
      for (const [link] of linksOf(this)) {
        linksOf(this).delete(link);
        link.end(new Error('The backend is closed'));
      }
    },
  });
}
