/** One request to the JSON gateway of etcd. */
export async function askEtcd<Answer>(url: string, path: string, body: object, token?: string): Promise<Answer> {
  const headers = { 'Content-Type': 'application/json', ...(token !== undefined && { Authorization: token }) };
  const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${text}`);
  return JSON.parse(text) as Answer;
}

/** Ends the sessions of all processes. */
export async function endAllLeases(url: string): Promise<void> {
  const { leases = [] } = await askEtcd<{ leases?: { ID: string }[] }>(url, '/v3/lease/leases', {});
  await Promise.all(leases.map(({ ID }) => askEtcd(url, '/v3/lease/revoke', { ID })));
}

/** All keys of etcd, in order. */
export async function keysOf(
  url: string,
): Promise<readonly { key: string; value: string; lease: string | undefined }[]> {
  interface Range {
    kvs?: { key: string; value?: string; lease?: string }[];
  }
  const all = Buffer.from([0]).toString('base64');
  const { kvs = [] } = await askEtcd<Range>(url, '/v3/kv/range', { key: all, range_end: all });
  return kvs.map(({ key, value, lease }) => ({ key: decoded(key), value: decoded(value ?? ''), lease }));
}

function decoded(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}
