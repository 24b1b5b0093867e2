import { NotLeaderError, PrimitiveConfigError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import { oneOf, text, timer } from '../options/checks.js';
import { primitiveOption } from '../options/option-checks.js';
import { OptionTable, settingOf } from '../options/option-table.js';
import { leaderLockName, type CandidateOptions } from '../primitives/leader/standing-candidacy.js';
import { LEADERS } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import { noteLeadership } from '../wiring/start-checks.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { proceedToEnd } from './holding.js';
import { requireNoPlaceholder } from './key-template.js';
import {
  methodName,
  serviceOf,
  wrapMethod,
  type MethodCall,
  type MethodDecoration,
  type MethodInterceptor,
} from './method-wrapping.js';

const DECORATOR = { name: 'OnlyLeader', ConfigError: PrimitiveConfigError };

/** The options of `@OnlyLeader`. */
export interface OnlyLeaderOptions extends Pick<CandidateOptions, 'lease' | 'backend'> {
  /**
   * What a call does in a process that does not lead: resolve to `undefined` (`'skip'`), or throw `NotLeaderError`
   * (`'throw'`).
   * @default 'skip'
   */
  elsewhere?: Elsewhere;
}

/** What a method does in a process that does not lead: resolve to `undefined`, or throw `NotLeaderError`. @inline */
export type Elsewhere = 'skip' | 'throw';

interface Settings {
  readonly elsewhere: Elsewhere;
  readonly lease: number | undefined;
  readonly backend: string | undefined;
}

const setting = settingOf<Settings>();

const ONLY_LEADER_OPTIONS = new OptionTable<OnlyLeaderOptions, Settings>(
  primitiveOption,
  'option of @OnlyLeader',
  '',
  { elsewhere: 'skip', lease: undefined, backend: undefined },
  {
    elsewhere: setting('elsewhere', oneOf('skip', 'throw')),
    lease: setting('lease', timer(100)),
    backend: setting('backend', text('the name of a backend')),
  },
);

/**
 * Runs the method only in the process that leads. The application stands for the leadership from its start.
 *
 * The first call of an instance outside of an application waits until it is known who leads. No call waits for the
 * leadership itself.
 *
 * @throws NotLeaderError where another process leads, with `elsewhere: 'throw'`
 * @throws LockLostError when the lease was lost before the method ended
 * @throws PrimitiveNotWiredError when Nest did not create the instance
 */
export function OnlyLeader<const Name extends string, const Options extends OnlyLeaderOptions = OnlyLeaderOptions>(
  name: Name,
  // Inferred as a whole, so that options of type `any` pass.
  options?: Options & OnlyLeaderOptions,
): CheckedMethodDecorator<'OnlyLeader', Name, [], Options>;
export function OnlyLeader(name: string, options: OnlyLeaderOptions = {}): MethodDecoration {
  leaderLockName(name);
  requireNoPlaceholder(name, 'LeaderElection.join()', PrimitiveKeyError);
  const given = primitiveOption.object('options', options, 'an object of options');
  const { elsewhere, lease, backend } = ONLY_LEADER_OPTIONS.settings(given);
  const candidate = { ...(lease !== undefined && { lease }), ...(backend !== undefined && { backend }) };
  const interceptor = new OnlyLeaderInterceptor(name, candidate, elsewhere);
  return (target, propertyKey, descriptor) => {
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, LEADERS);
    const place = methodName(target, propertyKey);
    noteLeadership(target, { name, place, property: propertyKey, options: candidate });
  };
}

/** Runs the method in the process that leads. Stands for the leadership, if the process does not yet. */
class OnlyLeaderInterceptor implements MethodInterceptor {
  constructor(
    private readonly name: string,
    private readonly options: CandidateOptions,
    private readonly elsewhere: Elsewhere,
  ) {}

  get mayAnswer(): string | undefined {
    return this.elsewhere === 'skip' ? 'a skipped call' : undefined;
  }

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const candidacy = serviceOf(LEADERS, call).candidacyFor(this.name, this.options);
    await candidacy?.answered;
    if (candidacy?.isLeader) return candidacy.run(() => proceedToEnd(LEADERS, call));
    if (this.elsewhere === 'skip') return undefined;
    throw new NotLeaderError(this.name);
  }
}
