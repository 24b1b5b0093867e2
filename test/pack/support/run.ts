import { execFile } from 'node:child_process';

/**
 * Runs a program to its end, and answers what it printed. Fails with all that it printed: tsc tells errors on stdout.
 */
export function run(command: string, args: string[], options: { cwd: string; env?: object }): Promise<string> {
  const { cwd, env } = options;
  return new Promise((resolve, reject) => {
    const settings = { cwd, env: { ...process.env, ...env }, maxBuffer: 16 * 1024 * 1024, timeout: 600_000 };
    execFile(command, args, settings, (error, stdout, stderr) => {
      if (!error) resolve(stdout);
      else reject(new Error(`${command} ${args.join(' ')} in ${cwd}:\n${stdout}\n${stderr}`, { cause: error }));
    });
  });
}
