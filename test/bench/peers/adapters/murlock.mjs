import { AsyncLocalStorage } from 'node:async_hooks';
import { LEASE, RETRY, WAIT } from '../patience.mjs';

const silent = { debug() {}, log() {}, warn() {}, error() {} };

export async function connect({ port, modules }) {
  modules.require('reflect-metadata');
  const { MurLockService } = modules.require('murlock');
  const { AsyncStorageService } = modules.require('murlock/dist/als/als.service.js');
  const { AsyncStorageManager } = modules.require('murlock/dist/als/als-manager.js');
  const storage = new AsyncStorageService(new AsyncStorageManager(new AsyncLocalStorage()));
  const redisOptions = { socket: { host: '127.0.0.1', port } };
  const settings = { redisOptions, wait: RETRY.delay, maxAttempts: WAIT, failFastOnRedisError: false };
  const service = new MurLockService({ ...settings, logLevel: 'none' }, storage);
  service.logger = silent; // its log level 'none' logs everything
  await service.onModuleInit();
  return (key, body) => service.runWithLock(key, LEASE, RETRY.delay, body);
}
