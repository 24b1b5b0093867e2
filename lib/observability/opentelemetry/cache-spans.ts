import { context, SpanStatusCode, type Span, type Tracer } from '@opentelemetry/api';
import { cacheChannels, type CacheLoadStarted } from '../../events/cache-channels.js';
import { listenAll } from '../listen-all.js';
import { ATTRIBUTE, typeOf } from './attributes.js';

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
