import 'reflect-metadata';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import * as here from '../../../dist/index.js';
import * as testing from '../../../dist/testing.js';

/** Prints, as JSON, what becomes of classes that one copy of the package decorates and another one serves. */
const root = fileURLToPath(new URL('../../..', import.meta.url)).replace(/\/$/, '');
mkdirSync(`${root}/node_modules/.cache`, { recursive: true });
const paths = { here: root, other: mkdtempSync(`${root}/node_modules/.cache/two-copies-`) };
for (const part of ['package.json', 'dist']) cpSync(`${root}/${part}`, `${paths.other}/${part}`, { recursive: true });
const other = await import(`${paths.other}/dist/index.js`);
process.on('exit', () => rmSync(paths.other, { recursive: true }));

function decorated({ DistributedLock, Cached }, which) {
  class Service {
    async call() {
      return 'ran';
    }
  }
  const decorator = which === 'lock' ? DistributedLock('name', { wait: 0, onBusy: 'skip' }) : Cached('name');
  const descriptor = Object.getOwnPropertyDescriptor(Service.prototype, 'call');
  decorator(Service.prototype, 'call', descriptor);
  Object.defineProperty(Service.prototype, 'call', descriptor);
  Injectable()(Service);
  return Service;
}

async function start(copies, providers) {
  class Root {}
  const imports = copies.map(({ RedisLockModule, memory }) =>
    RedisLockModule.forRoot({ backend: memory(), cache: {} }),
  );
  Module({ imports, providers })(Root);
  return NestFactory.createApplicationContext(Root, { logger: ['fatal'], abortOnError: false });
}

async function outcome(run) {
  try {
    return await run();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

async function called(copies, Service, provider = Service) {
  return outcome(async () => {
    const app = await start(copies, [provider]);
    try {
      return await app.get(Service).call();
    } finally {
      await app.close();
    }
  });
}

const answers = { paths, distinct: other.LockService !== here.LockService };
const Unserved = decorated(other, 'lock');
const mocks = [{ provide: other.LockService, useValue: { withLock: async (_key, _options, body) => body() } }];
answers.mocked = await outcome(async () =>
  (await Test.createTestingModule({ providers: [Unserved, ...mocks] }).compile()).get(Unserved).call(),
);
for (const which of ['lock', 'cache']) {
  const Service = decorated(other, which);
  answers[`${which} as a class`] = await called([here], Service);
  answers[`${which} as a value`] = await called([here], Service, { provide: Service, useValue: new Service() });
  answers[`${which} wired`] = await outcome(() => testing.wire(new Service()).call());
}
const providers = {
  'both modules, as a class': (Service) => Service,
  'both modules, as a value': (Service) => ({ provide: Service, useValue: new Service() }),
};
for (const [name, providerOf] of Object.entries(providers)) {
  const Service = decorated(other, 'lock');
  answers[name] = await called([here, other], Service, providerOf(Service));
}
console.log(`answers ${JSON.stringify(answers)}`);
