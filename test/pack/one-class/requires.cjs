// A dependency of the application that is CommonJS, and takes what the ES module provides.
const { Inject, Injectable } = require('@nestjs/common');
const { LockService } = require('nest-redis-lock');

class Job {
  constructor(locks) {
    this.locks = locks;
  }

  run() {
    return this.locks.withLock('job', async (lock) => lock.held);
  }
}
Injectable()(Job);
Inject(LockService)(Job, undefined, 0);

module.exports = { Job, LockService };
