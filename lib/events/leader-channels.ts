import type { LockLostReason } from '../errors/lock-errors.js';
import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** An event of one candidate. All events of a candidacy have the same `backend` and `label`. */
export interface LeaderEvent extends LockSource {
  /** The name of the leadership. */
  readonly name: string;
}

/** The process stands for the leadership from now on. */
export interface LeaderJoined extends LeaderEvent {}

/** The process stands no longer: it has left, and its term, if it led, is over. */
export interface LeaderLeft extends LeaderEvent {}

/** An event of one term. */
export interface LeaderTermEvent extends LeaderEvent {
  /** The number of the term, greater for each election. */
  readonly term: number;
}

/** The process leads. Exactly one of `lost` and `resigned` follows. */
export interface LeaderElected extends LeaderTermEvent {}

/** The lease ended before the leader did: another process may lead already. */
export interface LeaderLost extends LeaderTermEvent {
  readonly reason: LockLostReason;
}

/** The leader ended its term itself. */
export interface LeaderResigned extends LeaderTermEvent {
  /** `resigned`: by `resign()`. `left`: by `leave()`, or the application ends. `failed`: `onElected` threw. */
  readonly reason: 'resigned' | 'left' | 'failed';
}

/** The events of candidates, by name. */
export interface LeaderEventTypes {
  joined: LeaderJoined;
  elected: LeaderElected;
  lost: LeaderLost;
  resigned: LeaderResigned;
  left: LeaderLeft;
}

/** The channels of the candidates. */
export const leaderChannels: EventChannels<LeaderEventTypes> = {
  joined: eventChannel('leader:joined'),
  elected: eventChannel('leader:elected'),
  lost: eventChannel('leader:lost'),
  resigned: eventChannel('leader:resigned'),
  left: eventChannel('leader:left'),
};
