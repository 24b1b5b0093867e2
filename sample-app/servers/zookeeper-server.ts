import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { findProgram, requireServer, type NeededServer } from './programs.js';
import { freePort, ServerProcess, startAgain } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface ZooKeeperServer extends AsyncDisposable {
  /** `host:port` */
  readonly connection: string;
  readonly port: number;
  readonly process: ServerProcess;
  /** Ends the server; its data stays for `restart`. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data. */
  restart(): Promise<void>;
  /** Answers a command of four letters, such as `dump`. */
  ask(word: string): Promise<string>;
  stop(): Promise<void>;
}

const JAR = '/usr/share/java/zookeeper.jar';

const JAVA: NeededServer = {
  name: 'Java',
  packages: ['openjdk-17-jre-headless'],
  find: () => findProgram('java'),
  remedy: 'Install a Java runtime (apt-get install openjdk-17-jre-headless, as root)',
};

const ZOOKEEPER: NeededServer = {
  name: 'ZooKeeper',
  packages: ['libzookeeper-java'],
  find: () => [process.env['ZOOKEEPER_JAR'] ?? JAR].find((jar) => existsSync(jar)),
  remedy: 'Install it (apt-get install libzookeeper-java, as root), or set ZOOKEEPER_JAR to its zookeeper.jar',
};

interface ZooKeeperSettings {
  /** Sessions last from 2 to 20 times this, in ms. */
  readonly tickTime?: number;
  /** Present for a server of an ensemble: its number, and how it reaches each of them. */
  readonly ensemble?: { readonly id: number; readonly settings: Readonly<Record<string, string | number>> };
}

/**
 * Starts an ensemble of three servers of our own. The first one reaches the others by the ports that `via` answers,
 * such as those of proxies; a `syncLimit` (in ticks) later, a server that is cut off knows of it.
 */
export async function startZooKeeperEnsemble(
  via: (port: number) => Promise<number>,
  { tickTime = 500, syncLimit = 10 } = {},
): Promise<readonly ZooKeeperServer[]> {
  const ports: number[] = [];
  for (let index = 0; index < 6; index += 1) ports.push(await freePort());
  return Promise.all(
    [1, 2, 3].map(async (id) => {
      const settings: Record<string, string | number> = { initLimit: 10, syncLimit };
      for (const other of [1, 2, 3]) {
        const pair = ports.slice(2 * (other - 1), 2 * other);
        const reached = id === 1 && other !== 1 ? await Promise.all(pair.map(via)) : pair;
        settings[`server.${other}`] = `127.0.0.1:${reached.join(':')}`;
      }
      return startZooKeeperServer({ tickTime, ensemble: { id, settings } });
    }),
  );
}

/** Starts a ZooKeeper server of our own on a free port: a standalone one, or one of an ensemble. */
export async function startZooKeeperServer({
  tickTime = 500,
  ensemble,
}: ZooKeeperSettings = {}): Promise<ZooKeeperServer> {
  const java = requireServer(JAVA);
  const jar = requireServer(ZOOKEEPER);
  const directory = temporaryDirectory();
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const configuration = join(directory, 'zoo.cfg');
    writeFileSync(configuration, configurationOf(directory, port, { tickTime, ...ensemble?.settings }));
    if (ensemble) {
      mkdirSync(join(directory, 'data'), { recursive: true });
      writeFileSync(join(directory, 'data', 'myid'), String(ensemble.id));
    }
    const start = () =>
      ServerProcess.start({
        command: java,
        directory,
        args: [
          '-Xmx128m',
          '-XX:+UseSerialGC',
          '-XX:TieredStopAtLevel=1',
          '-Dzookeeper.forceSync=no',
          '-cp',
          jar,
          `org.apache.zookeeper.server.${ensemble ? 'quorum.QuorumPeerMain' : 'ZooKeeperServerMain'}`,
          configuration,
        ],
        ready: () => serves(port, directory),
      });
    try {
      return new StartedServer(port, directory, await start(), start);
    } catch (error) {
      // Somebody else took the port between our look and the server's bind.
      if (attempt === 5 || !String(error).includes('Address already in use')) throw error;
    }
  }
}

class StartedServer implements ZooKeeperServer {
  readonly connection: string;

  constructor(
    readonly port: number,
    private readonly directory: string,
    public process: ServerProcess,
    private readonly start: () => Promise<ServerProcess>,
  ) {
    this.connection = `127.0.0.1:${port}`;
  }

  async kill(): Promise<void> {
    await this.process.stop();
  }

  async restart(): Promise<void> {
    await this.process.stop();
    this.process = await startAgain(this.start);
  }

  ask(word: string): Promise<string> {
    return ask(this.port, word);
  }

  async stop(): Promise<void> {
    await this.process.stop();
    removeDirectory(this.directory);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function configurationOf(directory: string, port: number, others: Readonly<Record<string, string | number>>): string {
  const settings = {
    dataDir: join(directory, 'data'),
    clientPort: port,
    clientPortAddress: '127.0.0.1',
    maxClientCnxns: 0,
    'admin.enableServer': false,
    '4lw.commands.whitelist': '*',
    ...others,
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** It could be somebody else's server, on the port that ours was about to take; and "ruok" is answered too early. */
async function serves(port: number, directory: string): Promise<void> {
  const [state, configuration] = [await ask(port, 'srvr'), await ask(port, 'conf')];
  if (!/Mode: (standalone|leader|follower)/.test(state)) throw new Error(`not ready: ${state}`);
  if (!configuration.includes(directory)) throw new Error('another server answers');
}

function ask(port: number, word: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port }, () => socket.write(word));
    socket.setTimeout(2_000, () => socket.destroy(new Error('no answer')));
    socket.on('data', (bytes: Buffer) => (answer += bytes.toString()));
    socket.on('error', reject).on('close', () => resolve(answer));
  });
}
