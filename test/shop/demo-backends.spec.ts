import { sellWithLocksIn } from '../support/demo-sale.js';

it.each(['postgres', 'redlock'])('sells what is there, and nothing twice, with its locks in %s', async (backend) => {
  const results = await sellWithLocksIn(backend);
  expect(results).toMatchObject([
    {
      strategy: 'lock',
      accepted: 40,
      errors: 0,
      stockLeft: 0,
      oversoldBy: 0,
      invariants: { I1: true, I2: true, I3: true },
    },
    {
      strategy: 'fenced',
      accepted: 40,
      errors: 0,
      stockLeft: 0,
      oversoldBy: 0,
      invariants: { I1: true, I2: true, I3: true },
    },
  ]);
});
