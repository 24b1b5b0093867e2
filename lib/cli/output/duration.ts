import ms from 'ms';

/** Milliseconds for readers: `12s`. */
export function duration(milliseconds: number | null): string {
  return milliseconds === null ? 'never' : ms(Math.max(0, Math.round(milliseconds)));
}
