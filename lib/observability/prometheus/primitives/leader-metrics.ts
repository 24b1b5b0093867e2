import {
  leaderChannels,
  type LeaderEvent,
  type LeaderEventTypes,
  type LeaderLost,
  type LeaderResigned,
} from '../../../events/leader-channels.js';
import { listenAll, type Listeners } from '../../listen-all.js';
import { MetricFamily } from '../metric-family.js';
import { Series, zeros } from '../series.js';
import type { PrimitiveMetrics } from './primitive-metrics.js';

/** Counts the events of candidates. The template of one is the name of its leadership: a process stands for a few. */
export function leaderMetrics(prefix: string, maxTemplates: number): PrimitiveMetrics {
  const family = new MetricFamily(`${prefix}leader_`, maxTemplates, () => new LeaderSeries());
  family.counter('elected', 'Terms of this process that began', (of) => of.elected);
  family.counter('lost', 'Terms that ended because the lease was lost', (of) => of.lost, 'reason');
  family.counter('resigned', 'Terms that the leader ended itself', (of) => of.resigned, 'reason');
  family.gauge('leading', '1 while this process leads', (series) => series.leading);
  family.gauge('candidates', '1 while this process stands for the leadership', (series) => series.candidates);
  const of = ({ backend, name }: LeaderEvent) => family.of({ backend, template: name });
  const listeners: Listeners<LeaderEventTypes> = {
    joined: (event) => void (of(event).candidates += 1),
    left: (event) => of(event).leave(),
    elected: (event) => {
      const series = of(event);
      series.leading += 1;
      series.counts.elected += 1;
    },
    lost: (event) => {
      const series = of(event);
      series.step();
      series.counts.lost[event.reason] += 1;
    },
    resigned: (event) => {
      const series = of(event);
      series.step();
      series.counts.resigned[event.reason] += 1;
    },
  };
  return { all: family.all, listen: () => listenAll(leaderChannels, listeners) };
}

class LeaderSeries extends Series<LeaderCounts> {
  leading = 0;
  candidates = 0;

  constructor() {
    super(() => new LeaderCounts());
  }

  /** A term ended. One that began before anybody listened was not counted. */
  step(): void {
    if (this.leading > 0) this.leading -= 1;
  }

  /** A candidacy ended. */
  leave(): void {
    if (this.candidates > 0) this.candidates -= 1;
  }
}

class LeaderCounts {
  elected = 0;
  readonly lost = zeros<LeaderLost['reason']>('expired', 'taken', 'maxHold', 'shutdown');
  readonly resigned = zeros<LeaderResigned['reason']>('resigned', 'left', 'failed');
}
