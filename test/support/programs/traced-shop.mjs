// A shop over HTTP whose spans go to an exporter in memory. Argument 2: the port of Redis. Routes: POST /ship, which
// takes the lock of an order and, with ?wait, holds it until POST /go; GET /spans.
import { createServer } from 'node:http';
import { context, propagation, SpanKind, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { NestFactory } from '@nestjs/core';
import { LockEvents, LockService, RedisLockModule } from 'nest-redis-lock';
import { RedisLockTelemetryModule } from 'nest-redis-lock/opentelemetry';
import 'reflect-metadata';
import { say } from './lock-app.mjs';

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());

class Root {}
const redis = { host: '127.0.0.1', port: Number(process.argv[2]) };
const imports = [RedisLockModule.forRoot({ redis }), RedisLockTelemetryModule.forRoot()];
const app = await NestFactory.createApplicationContext({ module: Root, imports }, { logger: ['error'] });
const locks = app.get(LockService);
const tracer = trace.getTracer('shop');
app.get(LockEvents).on('contended', () => say('waits'));

let go;
const told = new Promise((resolve) => (go = resolve));

const routes = {
  'POST /ship': () => ship(Promise.resolve()),
  'POST /ship?wait': () => ship(told),
  'POST /go': async () => go(),
  'GET /spans': async () => exporter.getFinishedSpans().map(asJson),
};

function ship(until) {
  return tracer.startActiveSpan('POST /ship', { kind: SpanKind.SERVER }, async (span) => {
    await locks.withLock('order:7', { wait: '60s' }, async () => {
      say('holds');
      await until;
      tracer.startActiveSpan('work', (work) => work.end());
    });
    span.end();
  });
}

function asJson(span) {
  const { name, parentSpanContext, attributes, events } = span;
  const { traceId, spanId } = span.spanContext();
  return { name, traceId, spanId, parent: parentSpanContext?.spanId, attributes, events };
}

async function answer({ method, url, headers }, response) {
  const remote = propagation.extract(context.active(), headers);
  const said = await context.with(remote, routes[`${method} ${url}`]);
  response.end(JSON.stringify(said ?? null));
}

const server = createServer((request, response) => void answer(request, response));
server.listen(0, '127.0.0.1', () => say('port', server.address().port));
