import { availableParallelism, cpus, totalmem, type } from 'node:os';

/** What the figures were taken on. */
export async function environmentOf(control) {
  return {
    date: new Date().toISOString().slice(0, 10),
    'Node.js': process.versions.node,
    server: await control.version(),
    processor: `${cpus()[0]?.model.trim() || process.arch}, ${availableParallelism()} cores`,
    system: `${type()} ${process.arch}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
  };
}
