import { readFileSync } from 'node:fs';

/** Whether there is such a process, other than one that nobody has buried yet. Linux only. */
export function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
