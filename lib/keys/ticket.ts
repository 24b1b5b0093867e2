/**
 * Whether the ticket asks for a name to read: its number begins with 0 (`process:012`). The ticket itself says so,
 * because a queue, a message, and a late copy of a request have nothing else.
 */
export function isReadTicket(ticket: string): boolean {
  return /:0\d+$/.test(ticket);
}
