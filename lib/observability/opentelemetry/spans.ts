import { context, SpanStatusCode, type Attributes, type Context, type Span, type Tracer } from '@opentelemetry/api';
import { cacheChannels, type CacheLoadStarted } from '../../events/cache-channels.js';
import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import { listenAll } from '../event-stream.js';
import { ATTRIBUTE, typeOf } from './attributes.js';

/** What is known of one call between its events. */
interface TracedCall {
  /** The context of the caller: events may be published in that of another one, who releases the lock. */
  readonly parent: Context;
  readonly acquire: Span;
  readonly wait: number;
  hold?: Span;
}

/** Makes a span for each call that takes a lock, and one for each hold. Returns the function that stops. */
export function listenToLockSpans(tracer: Tracer): () => void {
  const calls = new WeakMap<LockCall, TracedCall>();
  const refuse = (call: LockCall, outcome: string, isError: boolean) => {
    const acquire = calls.get(call)?.acquire;
    acquire?.setAttribute(ATTRIBUTE.outcome, outcome);
    if (isError) failSpan(acquire, outcome);
    acquire?.end();
  };
  return listenAll(lockChannels, {
    attempt: ({ call, wait }) => {
      const parent = context.active();
      const acquire = tracer.startSpan(spanName('acquire', call), { attributes: attributesOf(call) }, parent);
      calls.set(call, { parent, acquire, wait });
    },
    contended: ({ call, owner }) => {
      calls.get(call)?.acquire.addEvent('contended', owner === undefined ? {} : { [ATTRIBUTE.owner]: owner });
    },
    handedOver: ({ call, from }) => {
      const acquire = calls.get(call)?.acquire;
      acquire?.setAttribute(ATTRIBUTE.handedOver, from ? 'process' : 'elsewhere');
      const hold = from && calls.get(from)?.hold;
      // Not the other way round as well: the span of the hold may have ended.
      if (hold) acquire?.addLink({ context: hold.spanContext() });
    },
    acquired: ({ call, owner, fencingToken, reentrant }) => {
      const traced = calls.get(call);
      if (!traced) return;
      const { parent, acquire } = traced;
      const granted = {
        [ATTRIBUTE.owner]: owner,
        [ATTRIBUTE.fencingToken]: fencingToken,
        [ATTRIBUTE.reentrant]: reentrant,
      };
      acquire.setAttributes({ ...granted, [ATTRIBUTE.outcome]: 'acquired' });
      acquire.end();
      const attributes = { ...attributesOf(call), ...granted };
      const links = [{ context: acquire.spanContext() }];
      traced.hold = tracer.startSpan(spanName('hold', call), { attributes, links }, parent);
    },
    // Who asks once expects that the lock may be busy.
    timedOut: ({ call }) => refuse(call, 'timeout', calls.get(call)?.wait !== 0),
    failed: ({ call, reason, error }) => {
      if (reason === 'backend') calls.get(call)?.acquire.recordException(error as Error);
      refuse(call, reason, true);
    },
    renewFailed: ({ call, why }) =>
      void calls.get(call)?.hold?.addEvent('renewal failed', { 'exception.message': why }),
    released: ({ call }) => calls.get(call)?.hold?.end(),
    lost: ({ call, reason }) => {
      const hold = calls.get(call)?.hold;
      failSpan(hold, reason);
      hold?.end();
    },
  });
}

function failSpan(span: Span | undefined, type: string): void {
  span?.setAttribute(ATTRIBUTE.errorType, type);
  span?.setStatus({ code: SpanStatusCode.ERROR, message: type });
}

function attributesOf({ keys, template, backend }: LockCall): Attributes {
  return {
    [ATTRIBUTE.keys]: [...keys],
    [ATTRIBUTE.backend]: backend,
    ...(template !== undefined && { [ATTRIBUTE.template]: template }),
  };
}

/** Has few values, as the names of spans should: the template, and not the key. */
function spanName(operation: 'acquire' | 'hold', { template }: LockCall): string {
  return template === undefined ? `${operation} lock` : `${operation} ${template}`;
}

/** Makes a span for each load of a cache. Returns the function that stops. */
export function listenToCacheSpans(tracer: Tracer): () => void {
  const loads = new WeakMap<CacheLoadStarted, Span>();
  return listenAll(cacheChannels, {
    loadStarted: (started) => {
      const { key, template } = started;
      const attributes = {
        [ATTRIBUTE.keys]: [key],
        ...(template !== undefined && { [ATTRIBUTE.template]: template }),
      };
      loads.set(started, tracer.startSpan(`load ${template ?? 'value'}`, { attributes }, context.active()));
    },
    load: ({ load, error }) => {
      const span = load && loads.get(load);
      if (!span) return;
      if (error !== undefined) {
        span.recordException(error as Error);
        span.setAttribute(ATTRIBUTE.errorType, typeOf(error));
        span.setStatus({ code: SpanStatusCode.ERROR });
      }
      span.end();
    },
  });
}
