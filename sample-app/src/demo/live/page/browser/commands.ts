import { byId } from './elements.js';

/** Asks the server to do something, and shows why it refuses to. */
export async function command(path: string, body?: object): Promise<void> {
  const problem = byId('problem');
  problem.textContent = '';
  try {
    const response = await fetch(path, {
      method: 'POST',
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    if (!response.ok) problem.textContent = ((await response.json()) as { message: string }).message;
  } catch {
    problem.textContent = 'The demo does not answer: has it been ended?';
  }
}
