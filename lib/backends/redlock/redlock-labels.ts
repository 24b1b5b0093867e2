import type { LabelRequest, NameRequest } from '../../contracts/lock-requests.js';
import { labelKey } from '../redis/locks/redis-lock-keys.js';
import { onMajority } from './rounds/on-majority.js';
import type { Quorum } from './rounds/quorum.js';

/** Stores the label of a process at a majority of the nodes; a `ttl` of 0 removes it. */
export async function storeLabel(quorum: Quorum, request: LabelRequest): Promise<void> {
  const key = labelKey(request, request.process);
  const { label, ttl } = request;
  await onMajority(quorum, ({ scripts }) =>
    scripts.command<unknown>((client) => (ttl === 0 ? client.del(key) : client.set(key, label, 'PX', ttl))),
  );
}

/** The label of the owner's process, which one node of a majority has at least. */
export async function labelOf(quorum: Quorum, request: NameRequest, owner: string): Promise<string | undefined> {
  const process = /^(.+):\d+$/.exec(owner)?.[1];
  if (process === undefined) return undefined;
  const key = labelKey(request, process);
  const labels: (string | null)[] = [];
  await onMajority(quorum, ({ scripts }) =>
    scripts.command((client) => client.get(key)).then((label) => labels.push(label)),
  );
  return labels.find((label) => label !== null) ?? undefined;
}
