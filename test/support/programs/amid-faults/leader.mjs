// Stands for leaderships, writes while it leads, and ends its terms in all ways that there are. Leads still when the
// application ends.
import { LeaderElection } from 'nest-redis-lock';
import { app, count, FencedHold, names, note, oneIn, stop, takePart, whole } from './part.mjs';

const LEASE = 1_000;
const election = app.get(LeaderElection);

async function lead(name, candidacy, signal, term) {
  const trusted = () => {
    const leads = candidacy.term === term;
    // After a standstill, the answer to a renewal may be unread: it decides whether the term has ended.
    if (!leads && !signal.aborted) {
      setTimeout(() => {
        if (candidacy.term === term || signal.aborted) return;
        void note(`${name}, term ${term}: does not lead, but its signal is not aborted`);
      }, 100);
    }
    return leads && !signal.aborted;
  };
  const hold = new FencedHold(`leader:${name}`, term, trusted);
  if (!(await hold.step('began'))) return;
  if (!(await hold.last(oneIn(60) ? whole(10, LEASE * 1.5) : whole(0, 3)))) return;
  await hold.step('ended', name);
}

/** One candidacy, until it leaves. */
async function stand(name) {
  await new Promise((left) => {
    stop.addEventListener('abort', left, { once: true });
    const candidacy = election.join(name, {
      lease: LEASE,
      onElected: async (signal, term) => {
        await lead(name, candidacy, signal, term);
        // A term that was lost: it stands again by itself.
        if (signal.aborted || stop.aborted) return;
        if (oneIn(40)) throw 'fails';
        if (oneIn(40)) {
          await candidacy.resign();
          return;
        }
        await candidacy.leave();
        stop.removeEventListener('abort', left);
        left();
      },
      onLost: (reason) => void count(`ended:${reason}`),
    });
  });
}

await takePart(names.map((name) => () => stand(name)));
