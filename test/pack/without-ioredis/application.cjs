// Starts an application with locks in memory, asks for locks on Redis, and prints what became of both.
exports.run = async ({ NestFactory }, { LockConfigError, LockService, memory, redis, RedisLockModule }) => {
  class App {}
  const imports = [RedisLockModule.forRoot({ backend: memory() })];
  const app = await NestFactory.createApplicationContext({ module: App, imports }, { logger: ['warn', 'error'] });
  const held = await app.get(LockService).withLock('job', async (lock) => lock.held);
  await app.close();
  try {
    redis('redis://localhost');
  } catch (error) {
    console.log(JSON.stringify({ held, refused: error instanceof LockConfigError, message: error.message }));
  }
};
