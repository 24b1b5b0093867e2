import { Inject, Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { PrimitiveConfigError } from '../../errors/primitive-errors.js';
import { LeaderElection } from '../../primitives/leader/leader-election.js';
import type { CandidateOptions } from '../../primitives/leader/leader-options.js';
import { prototypesOf } from './noted-methods.js';

/** A leadership that a method of the application needs. */
interface NotedLeadership {
  readonly name: string;
  /** `Class.method` */
  readonly place: string;
  readonly options: MethodOptions;
}

type MethodOptions = Pick<CandidateOptions, 'lease' | 'backend'>;

const NOTED_LEADERSHIPS = Symbol.for('nest-redis-lock:noted-leaderships');

/** Called at decoration, with the prototype of the class. */
export function noteLeadership(target: object, noted: NotedLeadership): void {
  Reflect.defineMetadata(NOTED_LEADERSHIPS, [...leadershipsOf(target), noted], target);
}

/** Makes the application stand for each leadership that its `@OnlyLeader` methods name, when it has started. */
@Injectable()
export class OnlyLeaderCandidates implements OnApplicationBootstrap {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LeaderElection) private readonly election: LeaderElection,
  ) {}

  /** @throws PrimitiveConfigError where two methods give one leadership different options */
  onApplicationBootstrap(): void {
    const byName = new Map<string, NotedLeadership[]>();
    for (const prototype of prototypesOf(this.discovery)) {
      for (const noted of leadershipsOf(prototype)) {
        const same = byName.get(noted.name);
        if (same) same.push(noted);
        else byName.set(noted.name, [noted]);
      }
    }
    const leaderships = Array.from(byName, ([name, noted]) => ({ name, options: commonOptions(name, noted) }));
    for (const { name, options } of leaderships) this.election.candidacyFor(name, options);
  }
}

/** What the methods of one leadership give together. @throws PrimitiveConfigError where they differ */
function commonOptions(name: string, leaderships: readonly NotedLeadership[]): MethodOptions {
  const lease = giving('lease', name, leaderships)?.lease;
  const backend = giving('backend', name, leaderships)?.backend;
  return { ...(lease !== undefined && { lease }), ...(backend !== undefined && { backend }) };
}

/** The options of the first method that gives this one. @throws PrimitiveConfigError where another one differs */
function giving(
  option: keyof MethodOptions,
  name: string,
  leaderships: readonly NotedLeadership[],
): MethodOptions | undefined {
  const [first, ...others] = leaderships.filter(({ options }) => options[option] !== undefined);
  const given = first?.options[option];
  const other = others.find(({ options }) => options[option] !== given);
  if (!first || !other) return first?.options;
  throw new PrimitiveConfigError(
    `@OnlyLeader("${name}") has the ${option} ${given} on ${first.place}, but ${other.options[option]} on ` +
      `${other.place}; give both the same, or leave it out of one`,
  );
}

/** Those of the class and of the classes that it extends. */
function leadershipsOf(prototype: object): readonly NotedLeadership[] {
  return (Reflect.getMetadata(NOTED_LEADERSHIPS, prototype) as NotedLeadership[] | undefined) ?? [];
}
