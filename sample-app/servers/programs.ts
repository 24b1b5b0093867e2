import { execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';

const POLICY = '/usr/sbin/policy-rc.d';

/** A server that tests and demo start by themselves. */
export interface NeededServer {
  /** As messages name it: `Redis`, `etcd`, ... */
  readonly name: string;
  /** What it is, for messages; a server unless given. */
  readonly kind?: string;
  /** Debian packages that contain it. */
  readonly packages: readonly string[];
  /** The path of its program or library; `undefined` while it is not installed. */
  readonly find: () => string | undefined;
  /** What to do if apt-get cannot install it, as a sentence. */
  readonly remedy: string;
}

/**
 * Finds the program, or installs it if that needs no question; otherwise says in one line what to do.
 *
 * @throws Error
 */
export function requireServer({ name, kind = 'server', packages, find, remedy }: NeededServer): string {
  const found = find();
  if (found) return found;
  const missing = `No ${name} ${kind} found. ${remedy}`;
  if (!findProgram('apt-get') || !findProgram('flock') || process.getuid?.() !== 0) throw new Error(missing);
  const shown = `Debian package${packages.length > 1 ? 's' : ''} ${packages.join(', ')}`;
  console.error(`No ${name} ${kind} found: installing ${shown} with apt-get (no service is started)`);
  try {
    installWithoutStarting(packages);
  } catch (error) {
    throw new Error(`apt-get could not install ${packages.join(', ')}. ${missing}`, { cause: error });
  }
  const installed = find();
  if (!installed) throw new Error(missing);
  return installed;
}

/** The path of the first of these programs on the PATH. */
export function findProgram(...names: string[]): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/local/sbin', '/usr/sbin', '/sbin'];
  const candidates = names.flatMap((name) => (isAbsolute(name) ? [name] : folders.map((folder) => join(folder, name))));
  return candidates.find(isExecutable);
}

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * apt starts what it installs unless a policy forbids it, and enables it for the next boot whatever the policy says.
 * Arguments: the policy, the packages.
 */
const INSTALL = `
policy=$1; shift
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\\nexit 101\\n' >"$policy" && chmod 755 "$policy"
fi
apt-get -o DPkg::Lock::Timeout=120 -qq update &&
apt-get -o DPkg::Lock::Timeout=120 -qq install -y --no-install-recommends "$@"`;

/** One process at a time, as several tests that start at once may need a server each. */
function installWithoutStarting(packages: readonly string[]): void {
  const alone = ['/tmp/nest-redis-lock-apt', 'sh', '-c', INSTALL, 'install', POLICY, ...packages];
  execFileSync('flock', alone, {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  for (const name of packages) disableService(name);
}

function disableService(name: string): void {
  if (!existsSync(`/etc/init.d/${name}`)) return;
  const systemctl = findProgram('systemctl');
  if (systemctl) execFileSync(systemctl, ['disable', '--quiet', name], { stdio: 'ignore' });
  else execFileSync('update-rc.d', [name, 'disable'], { stdio: 'ignore' });
}
