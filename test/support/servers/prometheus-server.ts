import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findProgram, requireServer } from '../../../sample-app/servers/programs.js';
import { freePort } from '../../../sample-app/servers/server-process.js';
import { ServerProcess } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface PrometheusServer extends AsyncDisposable {
  readonly url: string;
  /** The names of the alerts that fire. */
  alerts(): Promise<readonly string[]>;
  /** How many series a query answers. @throws Error where Prometheus refuses the query */
  series(query: string): Promise<number>;
}

/** The path of `promtool`; installs Prometheus where that can be done without asking. */
export function requirePromtool(): string {
  return requireServer({
    name: 'Prometheus',
    packages: ['prometheus'],
    find: () => findProgram('prometheus') && findProgram('promtool'),
    remedy: 'Install it: apt-get install prometheus (as root).',
  });
}

/** Starts a Prometheus that scrapes `target` (host and port) each second, with these rules; nothing of it survives. */
export async function startPrometheus(target: string, rules: string): Promise<PrometheusServer> {
  requirePromtool();
  const directory = temporaryDirectory();
  const url = `http://127.0.0.1:${await freePort()}`;
  const config = {
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.yml'],
    scrape_configs: [{ job_name: 'shop', static_configs: [{ targets: [target] }] }],
  };
  writeFileSync(join(directory, 'rules.yml'), rules);
  writeFileSync(join(directory, 'prometheus.yml'), JSON.stringify(config));
  const settings = ['--config.file=prometheus.yml', '--storage.tsdb.path=data', `--web.listen-address=${url.slice(7)}`];
  const server = await ServerProcess.start({
    command: findProgram('prometheus') as string,
    directory,
    args: settings,
    ready: async () => {
      const { ok, status } = await fetch(`${url}/-/ready`);
      if (!ok) throw new Error(`It answers ${status}`);
    },
  });
  const ask = async <T>(path: string): Promise<T> => {
    const answer = (await (await fetch(`${url}/api/v1/${path}`)).json()) as { status: string; error: string; data: T };
    if (answer.status !== 'success') throw new Error(answer.error);
    return answer.data;
  };
  return {
    url,
    alerts: async () => {
      const { alerts } = await ask<{ alerts: { state: string; labels: { alertname: string } }[] }>('alerts');
      return alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname);
    },
    series: async (query) =>
      (await ask<{ result: readonly unknown[] }>(`query?query=${encodeURIComponent(query)}`)).result.length,
    [Symbol.asyncDispose]: async () => {
      await server.stop();
      removeDirectory(directory);
    },
  };
}
