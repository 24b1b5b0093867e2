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
];
