import { runLimitedCrew } from '../support/limited-crew.js';

const PROCESSES = Number(process.env['RATE_LIMIT_PROCESSES'] ?? 2);
const BURST = 20;
/** One unit in 5 ms. `RATE_LIMIT_MS=150000 RATE_LIMIT_PROCESSES=4` makes a long run, and prints what it counted. */
const WORK = {
  processes: PROCESSES,
  keys: 4,
  duration: Number(process.env['RATE_LIMIT_MS'] ?? 1_600),
  interval: 5_000,
};
const LIMIT = { limit: 200, per: '1s', burst: BURST, onFailure: 'closed' } as const;
const LOCAL_SHARE = 5;

it.each([
  ['several processes never get more than the limit', BURST, LIMIT],
  [
    'with a local share, they get at most that share for each process more',
    BURST + PROCESSES * LOCAL_SHARE,
    { ...LIMIT, localShare: LOCAL_SHARE },
  ],
] as const)(
  '%s in any time span, amid kills, freezes, cut connections and SCRIPT FLUSH',
  async (_what, burst, options) => {
    const { mischief, ...report } = await runLimitedCrew({ ...WORK, burst, options });
    for (const done of Object.values(mischief)) expect(done).toBeGreaterThan(0);
    expect(report.denied).toBeGreaterThan(0);
    expect(report.noted).toBeGreaterThan(BURST * WORK.keys);
    expect(report.excess).toBeLessThanOrEqual(0);
    if (process.env['RATE_LIMIT_MS']) console.log({ ...report, ...mischief });
  },
  120_000 + 2 * WORK.duration,
);
