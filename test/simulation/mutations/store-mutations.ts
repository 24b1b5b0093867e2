// Rules of the other stores, broken one at a time: see mutation.ts.

import type { Mutation } from './mutation.js';

const ETCD_NAMES = 'backends/etcd/etcd-names.ts';

/** Readers that wait for the renewal of the lease that they share, over a network that is slow. */
const SLOW_READERS = { reads: 0.9, slow: 0.4, slowness: 400, ttl: 800, commandTimeout: 500 };

export const STORE_MUTATIONS: readonly Mutation[] = [
  {
    name: 'wait: a call waits for the renewal of its lease for as long as that takes',
    store: 'contract',
    edits: [
      {
        file: 'lock/hold/hold-taker.ts',
        text: 'await caller.until(watchdog.renewedOrOver(grant), caller.left(calls));',
        becomes: 'await caller.until(watchdog.renewedOrOver(grant), Infinity);',
      },
    ],
    swarm: SLOW_READERS,
  },
  {
    name: 'etcd: a release takes the name from any owner',
    store: 'etcd',
    edits: [
      {
        file: ETCD_NAMES,
        text: `    let outcome = await this.attempt(lock, {
      compare: [this.isUnwanted(lock, ticket)],`,
        becomes: `    let outcome = await this.attempt(lock, {
      compare: [],`,
      },
    ],
  },
  {
    name: 'etcd: a ticket that was given back is asked for',
    store: 'etcd',
    edits: [
      {
        file: 'backends/etcd/etcd-session.ts',
        text: '        if (asking.over) throw new Error(`Ticket ${ticket} was given back before it was asked for`);\n',
        becomes: '',
      },
    ],
    swarm: { slow: 0.4, slowness: 400, cuts: 4 },
  },
  {
    name: 'etcd: a body begins with what a wait has left of its lease',
    store: 'etcd',
    edits: [
      {
        file: 'lock/grant/watchdog.ts',
        text: '  if (remaining >= ENOUGH * (most > 0 ? Math.min(ttl, most) : ttl)) return false;\n',
        becomes: '  if (remaining > 0) return false;\n',
      },
    ],
    swarm: { faultless: true, blocks: 0.3, ttl: 800, callers: 4 },
  },
  {
    name: 'etcd: a new owner does not learn of who began to wait during its hand-over',
    store: 'etcd',
    edits: [
      {
        file: ETCD_NAMES,
        text: 'if (outcome.succeeded && outcome.count(0) > waiting && to.ticket !== caller) void this.want(lock, to);',
        becomes: '',
      },
    ],
    swarm: { faultless: true, lingers: 0.6, lingerTime: 5_000, blocks: 0 },
  },
  {
    name: 'polled: a process that has lost a lock asks before the others',
    store: 'contract',
    edits: [{ file: 'lock/line/turn.ts', text: '    if (this.wanted) this.giveWay();\n', becomes: '' }],
    swarm: { faultless: true, overstays: 0.25, ttl: 800, names: ['a'], reads: 0 },
  },
];
