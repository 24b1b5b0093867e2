// Rules of the other stores, broken one at a time: see mutation.ts.

import type { Mutation } from './mutation.js';

const ETCD_RELEASES = 'backends/etcd/etcd-releases.ts';

export const STORE_MUTATIONS: readonly Mutation[] = [
  {
    name: 'etcd: a release takes the name from any owner',
    store: 'etcd',
    edits: [
      {
        file: ETCD_RELEASES,
        text: `    let outcome = await names.attempt(request, {
      compare: [names.isUnwanted(request, ticket)],`,
        becomes: `    let outcome = await names.attempt(request, {
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
        text: '    if (remaining >= ENOUGH * Math.min(options.ttl, most)) return false;\n',
        becomes:
          "    if (remaining >= ENOUGH * Math.min(options.ttl, most) || this.calls.backend.traits.lease === 'session') return false;\n",
      },
    ],
    swarm: { faultless: true, blocks: 0.3, ttl: 800, callers: 4 },
  },
  {
    name: 'polled: a process that has lost a lock asks before the others',
    store: 'contract',
    edits: [{ file: 'lock/line/turn.ts', text: '    if (this.wanted) this.giveWay();\n', becomes: '' }],
    swarm: { faultless: true, overstays: 0.25, ttl: 800, names: ['a'], reads: 0 },
  },
];
