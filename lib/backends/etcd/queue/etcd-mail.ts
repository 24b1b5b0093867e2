import type { QueueMessage } from '../../../contracts/lock-backend.js';
import type { KeyValue } from '../client/etcd-messages.js';
import { decode } from '../client/etcd-messages.js';
import type { EtcdSessions } from '../session/etcd-sessions.js';
import type { TokenOffset } from '../token-offset.js';

/** A message in a mailbox. The tokens of a grant are those of the revision at which it was written. */
export type Mail =
  | {
      readonly kind: 'grant';
      readonly ticket: string;
      readonly name: string;
      readonly waiting: number;
      readonly offset: number;
    }
  | { readonly kind: 'wanted'; readonly ticket: string; readonly name: string }
  | { readonly kind: 'revoked'; readonly ticket: string };

export function mailOf(messages: readonly Mail[]): string {
  return JSON.stringify(messages);
}

/** The messages in a mailbox that was just written, with the lease that the ticket waited with. */
export function messagesIn(
  { value, lease, mod_revision: revision }: KeyValue,
  offset: TokenOffset,
  sessions: EtcdSessions,
): readonly QueueMessage[] {
  const mail = JSON.parse(decode(value)) as readonly Mail[];
  return mail.map((message) => {
    if (message.kind !== 'grant') return message;
    const { kind, ticket, name, waiting } = message;
    const tokens = offset.tokensOf(Number(revision), message.offset);
    return { kind, ticket, name, waiting, tokens, claim: sessions.remaining(lease) };
  });
}
