import { existsSync, writeFileSync } from 'node:fs';
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

/**
 * Starts a standalone ZooKeeper server of our own on a free port. Sessions last from 2 to 20 times `tickTime`, in ms.
 */
export async function startZooKeeperServer({ tickTime = 500 } = {}): Promise<ZooKeeperServer> {
  const java = requireServer(JAVA);
  const jar = requireServer(ZOOKEEPER);
  const directory = temporaryDirectory();
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const configuration = join(directory, 'zoo.cfg');
    writeFileSync(configuration, configurationOf(directory, port, tickTime));
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
          'org.apache.zookeeper.server.ZooKeeperServerMain',
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

function configurationOf(directory: string, port: number, tickTime: number): string {
  const settings = {
    tickTime,
    dataDir: join(directory, 'data'),
    clientPort: port,
    clientPortAddress: '127.0.0.1',
    maxClientCnxns: 0,
    'admin.enableServer': false,
    '4lw.commands.whitelist': '*',
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** It could be somebody else's server, on the port that ours was about to take; and "ruok" is answered too early. */
async function serves(port: number, directory: string): Promise<void> {
  const [state, configuration] = [await ask(port, 'srvr'), await ask(port, 'conf')];
  if (!state.includes('Mode: standalone')) throw new Error(`not ready: ${state}`);
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
