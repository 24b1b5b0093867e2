/** The element of the document that has this id. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`No element ${id}`);
  return element;
}

/** Changes the text only where it differs, so that a screen reader says nothing twice. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function create(name: string, text = '', className = ''): HTMLElement {
  const element = document.createElement(name);
  element.textContent = text;
  if (className !== '') element.className = className;
  return element;
}

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
