import { absent } from './absent.mjs';
import { avalanche } from './avalanche.mjs';
import { coherence } from './coherence.mjs';
import { outage } from './outage.mjs';
import { BOTH_LEVELS, SECOND_LEVEL } from './peers/catalogue.mjs';
import { prefixDeletion } from './prefix-deletion.mjs';
import { stampede } from './stampede.mjs';
import { throughput } from './throughput.mjs';
import { writeRace } from './write-race.mjs';

const ALL = [...SECOND_LEVEL, ...BOTH_LEVELS];
const HANDWRITTEN = ['raw-ioredis5', 'raw-cork', 'raw-mget', 'raw-node-redis'];
const OUTAGE = [...ALL, 'bento-l1l2-tuned', 'cacheable-l1l2-nonblocking'];

export const SCENARIOS = [
  throughput({
    title: 'second-level hit, 512 B, 1 caller',
    note: 'What a hit in Redis costs: mostly a round trip.',
    peers: [...HANDWRITTEN, ...SECOND_LEVEL],
    operation: 'hits',
    keys: 10_000,
    callers: 1,
  }),
  throughput({
    title: 'second-level hit, 512 B, 100 callers',
    note: 'The same with 100 callers in one process: mostly processor time.',
    peers: [...HANDWRITTEN, ...SECOND_LEVEL],
    operation: 'hits',
    keys: 10_000,
    callers: 100,
  }),
  throughput({
    title: 'second-level hit, one hot key, 100 callers',
    note: 'One key that all want.',
    peers: SECOND_LEVEL,
    operation: 'hits',
    keys: 1,
    callers: 100,
  }),
  throughput({
    title: 'first-level hit, 512 B, 1 caller',
    note: 'What a hit in the memory of the process costs. `map` is the limit: no Redis, no bound.',
    peers: [
      'map-json',
      'bento-l1l2',
      'cm-l1l2',
      'cacheable-l1l2-json',
      'cacheable-l1l2',
      'ours-l1l2',
      'map-ref',
      'bento-l1l2-ref',
      'cm-l1l2-ref',
      'cacheable-l1l2-ref',
      'ours-l1l2-ref',
    ],
    operation: 'hits',
    keys: 1_000,
    callers: 1,
    timed: 64,
    fromMemory: true,
  }),
  throughput({
    title: 'cold misses, distinct keys, 100 callers',
    note: 'Every call loads and stores.',
    peers: [...ALL, 'nest-interceptor-l1l2'],
    operation: 'coldMisses',
    callers: 100,
    unit: { one: 'miss', many: 'misses' },
  }),
  throughput({
    title: 'hits and cold misses, half and half, 100,000 keys, 100 callers',
    note: 'Every other call reads one of 100,000 stored keys, the next one a key that nobody has read before.',
    peers: SECOND_LEVEL,
    operation: 'mixed',
    keys: 100_000,
    callers: 100,
  }),
  stampede({
    title: 'stampede, 1 process × 1000 callers, loader 200 ms',
    note: 'All want one key that is not there, at the same moment.',
    peers: ALL,
    processes: 1,
    callers: 1_000,
    loaderMs: 200,
  }),
  stampede({
    title: 'stampede, 4 processes × 250 callers, loader 200 ms',
    note: 'The same over four processes.',
    peers: ALL,
    processes: 4,
    callers: 250,
    loaderMs: 200,
  }),
  stampede({
    title: 'stampede, 4 processes × 50 callers, loader 8 s',
    note: 'The loader takes longer than a lease of ours.',
    peers: ALL,
    processes: 4,
    callers: 50,
    loaderMs: 8_000,
    once: true,
  }),
  writeRace({
    title: 'write race, invalidated by the other process',
    note: 'A loader has read the old row and is slow; the row changes, and another process invalidates it; then the loader returns.',
    peers: ALL,
    by: 'other',
  }),
  writeRace({
    title: 'write race, invalidated by the loading process',
    note: 'The same, where the process that loads invalidates.',
    peers: ALL,
    by: 'loader',
  }),
  coherence({
    title: 'first-level coherence, 2 processes',
    note: 'For how long one process serves from its memory what another one has invalidated.',
    peers: BOTH_LEVELS,
  }),
  coherence({
    title: 'first-level coherence, subscriptions cut just before',
    note: 'The same where the connections that messages come by are closed just before.',
    peers: BOTH_LEVELS,
    cut: true,
  }),
  outage({
    title: 'Redis stopped for 3 s',
    note: 'Redis stands still (SIGSTOP) under 200 calls a second, half of them for keys that are stored, and 50 other keys are invalidated meanwhile.',
    peers: OUTAGE,
    kind: 'stop',
  }),
  outage({
    title: 'Redis killed, back after 3 s, empty',
    note: 'The same where Redis ends, and is started again without its data.',
    peers: OUTAGE,
    kind: 'kill',
  }),
  avalanche({
    title: 'avalanche, 10,000 keys with one ttl of 30 s',
    note: 'They are stored together and read without pause while they run out. 1 is as bunched as they were stored.',
    peers: ALL,
    keys: 10_000,
    ttl: 30_000,
    callers: 500,
    loaderMs: 5,
  }),
  absent({
    title: 'absent ids, 2 × 10,000 lookups over 2,000 ids',
    note: 'Their loader finds nothing. Two processes ask, one after the other, with 50 callers each.',
    peers: ALL,
    lookups: 10_000,
    ids: 2_000,
    callers: 50,
  }),
  prefixDeletion({
    title: 'deletion by prefix, 100,000 of 1,000,000 keys',
    note: 'One process of ours deletes, and another one reads stored keys one after the other: first alone, then during the deletion.',
    keys: 1_000_000,
    deleted: 100_000,
  }),
];
