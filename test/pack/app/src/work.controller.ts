import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Inject, Param, Post } from '@nestjs/common';
import { DistributedLock, LockService } from 'nest-redis-lock';

@Controller()
export class WorkController {
  private inside = 0;
  private readonly letGo = new Map<string, () => void>();

  constructor(@Inject(LockService) private readonly locks: LockService) {}

  /** Tells how many were at work when it came in. */
  @Post('work/:id')
  @DistributedLock('work:<0>', { backend: 'own' })
  async work(@Param('id') _id: string): Promise<{ others: number }> {
    const others = this.inside++;
    await sleep(100);
    this.inside--;
    return { others };
  }

  @Post('try/:id')
  @DistributedLock('work:<0>', { wait: 0, backend: 'own' })
  async try(@Param('id') id: string): Promise<{ id: string }> {
    return { id };
  }

  @Post('hold/:id')
  async hold(@Param('id') id: string): Promise<{ token: number }> {
    return this.locks.withLock(`work:${id}`, { wait: 0 }, async (lock) => {
      await new Promise<void>((letGo) => this.letGo.set(id, letGo));
      return { token: lock.fencingToken };
    });
  }

  @Post('let-go/:id')
  release(@Param('id') id: string): void {
    this.letGo.get(id)?.();
  }
}
