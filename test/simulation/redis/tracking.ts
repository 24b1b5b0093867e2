// Client tracking in its broadcast mode: a connection gets a message for each change of a key with its prefix.

import type { Connection } from './redis-model.js';
import { Refused, type Reply } from './replies.js';

const CHANNEL = '__redis__:invalidate';

interface Follower {
  /** The id of the connection that gets the messages. */
  readonly told: number;
  readonly prefixes: readonly string[];
  readonly changed: Set<string>;
}

export class Tracking {
  /** By the id of the connection that asked for it. */
  private readonly followers = new Map<number, Follower>();
  private everything = false;

  constructor(private readonly connectionOf: (id: number) => Connection | undefined) {}

  /** The arguments of CLIENT TRACKING. */
  follow(id: number, [state = '', ...options]: readonly string[]): void {
    if (state.toUpperCase() === 'OFF') {
      this.followers.delete(id);
      return;
    }
    let [told, broadcast] = [id, false];
    const prefixes: string[] = [];
    for (let i = 0; i < options.length; i++) {
      const option = options[i]?.toUpperCase();
      if (option === 'BCAST') broadcast = true;
      else if (option === 'REDIRECT') told = Number(options[++i]);
      else if (option === 'PREFIX') prefixes.push(options[++i] ?? '');
      else throw new Error(`The model of Redis does not know CLIENT TRACKING with ${option}`);
    }
    if (!broadcast) throw new Error('The model of Redis knows client tracking only in its broadcast mode');
    if (!this.connectionOf(told)) throw new Refused('ERR The client ID you want redirect to does not exist');
    this.followers.set(id, { told, prefixes: prefixes.length > 0 ? prefixes : [''], changed: new Set() });
  }

  forget(id: number): void {
    this.followers.delete(id);
  }

  changed(key: string): void {
    for (const { prefixes, changed } of this.followers.values()) {
      if (prefixes.some((prefix) => key.startsWith(prefix))) changed.add(key);
    }
  }

  allChanged(): void {
    this.everything = this.followers.size > 0;
  }

  /** After a command: tells what it has changed. */
  tell(): void {
    for (const { told, changed } of this.followers.values()) {
      if (changed.size > 0) this.send(told, [...changed]);
      changed.clear();
      if (this.everything) this.send(told, null);
    }
    this.everything = false;
  }

  private send(id: number, keys: Reply): void {
    const connection = this.connectionOf(id);
    if (connection?.protocol === 3) connection.push(['invalidate', keys]);
    else if (connection?.channels?.has(CHANNEL)) connection.push(['message', CHANNEL, keys]);
  }
}
