import { after, bytes, NOW } from './sql.js';

/** How long (ms) a process counts as waiting after its last try. */
const MARKED = 500;

/** What the tickets of a process begin with. */
export function processOf(ticket: string): string {
  const end = ticket.lastIndexOf(':');
  return end < 0 ? ticket : ticket.slice(0, end);
}

/** Whether a process other than `me` waits for the row's name: of two marks, it can own one only. */
export function othersWait(me: string): string {
  return `(waiter1 <> ${me} AND waiter1_until > ${NOW}) OR (waiter2 <> ${me} AND waiter2_until > ${NOW})`;
}

/**
 * Assignments that note that the process of the ticket waits: in its own mark, else in one that has ended; else two
 * other processes wait already.
 */
export function markWaiting(ticket: string): string {
  const me = bytes(processOf(ticket));
  const first = `(waiter1 = ${me} OR (waiter2 <> ${me} AND waiter1_until <= ${NOW}))`;
  const second = `(NOT ${first} AND (waiter2 = ${me} OR waiter2_until <= ${NOW}))`;
  return `waiter1 = IF(${first}, ${me}, waiter1),
waiter1_until = IF(${first}, ${after(MARKED)}, waiter1_until),
waiter2 = IF(${second}, ${me}, waiter2),
waiter2_until = IF(${second}, ${after(MARKED)}, waiter2_until)`;
}
