import type { LiveState, ProcessState } from '../../live-state.js';
import { command } from './commands.js';
import { byId, create, setText } from './elements.js';

const ACTIONS = ['freeze', 'cut-off', 'kill'] as const;
type Action = (typeof ACTIONS)[number];

const NAMES: Readonly<Record<Action, string>> = { freeze: 'Freeze', 'cut-off': 'Cut off', kill: 'Kill' };
/** The condition that an action leads to, and the name of the way back. */
const UNDONE: Readonly<Record<Action, { from: ProcessState['condition']; name: string }>> = {
  freeze: { from: 'frozen', name: 'Resume' },
  'cut-off': { from: 'cut off', name: 'Connect' },
  kill: { from: 'dead', name: 'Start again' },
};

/** Shows each process with its buttons. The elements stay, so that the focus stays where it is. */
export function showProcesses({ processes, lock, phase }: LiveState): void {
  const list = byId('processes');
  while (list.children.length > processes.length) list.lastElementChild?.remove();
  while (list.children.length < processes.length) list.append(item(list.children.length + 1));
  for (const [index, process] of processes.entries()) {
    const element = list.children[index] as HTMLElement;
    const holds = lock?.holder === process.number;
    element.classList.toggle('broken', process.condition !== 'running');
    setText(part(element, 'who strong'), `Process ${process.number}`);
    setText(part(element, 'badge'), holds ? `${process.condition}, holds the lock` : process.condition);
    setText(part(element, 'counts'), `pid ${process.pid} · ${process.accepted} sold · ${process.open} requests open`);
    for (const action of ACTIONS) showButton(element, action, process, phase === 'preparing');
  }
}

function item(number: number): HTMLElement {
  const element = create('li');
  const who = create('div', '', 'who');
  who.append(create('strong'), create('span', '', 'badge'), create('span', '', 'counts'));
  const buttons = create('div', '', 'buttons');
  for (const action of ACTIONS) {
    const button = create('button', '', action) as HTMLButtonElement;
    button.type = 'button';
    button.addEventListener('click', () => {
      void command(`/processes/${number}/${button.dataset['undoes'] === 'yes' ? 'repair' : action}`);
    });
    buttons.append(button);
  }
  element.append(who, buttons);
  return element;
}

function showButton(element: HTMLElement, action: Action, process: ProcessState, preparing: boolean): void {
  const button = part(element, action) as HTMLButtonElement;
  const { condition, number, separable } = process;
  const undoes = condition === UNDONE[action].from;
  const name = undoes ? UNDONE[action].name : NAMES[action];
  const possible = condition === 'running' || undoes || (action === 'kill' && condition !== 'dead');
  button.dataset['undoes'] = undoes ? 'yes' : 'no';
  button.disabled = preparing || !possible || (action === 'cut-off' && !separable);
  setText(button, name);
  if (button.ariaLabel !== `${name} process ${number}`) button.ariaLabel = `${name} process ${number}`;
}

function part(element: HTMLElement, name: string): HTMLElement {
  return element.querySelector(`.${name}`) as HTMLElement;
}
