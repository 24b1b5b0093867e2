import { join } from 'node:path';
import { findProgram, requireServer, type NeededServer } from './programs.js';
import { freePort, ServerProcess, startAgain } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface EtcdServer extends AsyncDisposable {
  readonly url: string;
  readonly process: ServerProcess;
  stop(): Promise<void>;
}

export interface EtcdMember extends EtcdServer {
  /** Starts the member again after its process has ended, with its data or without. */
  restart(options?: { empty?: boolean }): Promise<void>;
}

const ETCD: NeededServer = {
  name: 'etcd',
  packages: ['etcd-server'],
  find: () => findProgram('etcd'),
  remedy: 'Install one: apt-get install etcd-server (as root), or brew install etcd.',
};

/** A leader that is gone is replaced after one to two of these (ms). */
const ELECTION_TIMEOUT = 500;

/** Finds the program, or installs it where that can be done without asking; otherwise says in one line what to do. */
export function requireEtcdProgram(): string {
  return requireServer(ETCD);
}

/** Starts an etcd of one member on free ports; nothing of it survives. */
export async function startEtcdServer(
  options: { args?: string[]; scheme?: 'http' | 'https' } = {},
): Promise<EtcdServer> {
  const [member] = await startEtcdCluster(1, options);
  return member as EtcdMember;
}

/** Starts the members of one cluster on free ports; nothing of it survives. */
export async function startEtcdCluster(
  members: number,
  { args = [], scheme = 'http' }: { args?: string[]; scheme?: 'http' | 'https' } = {},
): Promise<readonly EtcdMember[]> {
  const program = requireEtcdProgram();
  const places: Place[] = [];
  for (let index = 0; index < members; index++) {
    const [client, peer] = [await freePort(), await freePort()];
    places.push({ name: `member${index}`, url: `${scheme}://127.0.0.1:${client}`, peer: `http://127.0.0.1:${peer}` });
  }
  const cluster = places.map(({ name, peer }) => `${name}=${peer}`).join(',');
  return Promise.all(places.map((place) => startMember(program, place, ['--initial-cluster', cluster, ...args])));
}

interface Place {
  readonly name: string;
  readonly url: string;
  readonly peer: string;
}

async function startMember(program: string, { name, url, peer }: Place, more: string[]): Promise<EtcdMember> {
  const directory = temporaryDirectory();
  const settings = {
    name,
    'data-dir': join(directory, 'data'),
    'listen-client-urls': url,
    'advertise-client-urls': url,
    'listen-peer-urls': peer,
    'initial-advertise-peer-urls': peer,
    'heartbeat-interval': ELECTION_TIMEOUT / 10,
    'election-timeout': ELECTION_TIMEOUT,
    'unsafe-no-fsync': true,
    logger: 'zap',
  };
  const args = [...Object.entries(settings).map(([option, value]) => `--${option}=${value}`), ...more];
  const start = () => ServerProcess.start({ command: program, directory, args, ready: servesClients });
  let current = await start();
  const stop = async () => {
    await current.stop();
    removeDirectory(directory);
  };
  const restart = async ({ empty = false } = {}) => {
    if (empty) removeDirectory(settings['data-dir']);
    current = await startAgain(start);
  };
  return {
    url,
    get process() {
      return current;
    },
    stop,
    restart,
    [Symbol.asyncDispose]: stop,
  };
}

/** The member logs this line once a leader is elected and it listens. */
async function servesClients({ log }: ServerProcess): Promise<void> {
  if (!/serving client traffic|serving insecure client requests/.test(log))
    throw new Error('it does not serve clients');
}
