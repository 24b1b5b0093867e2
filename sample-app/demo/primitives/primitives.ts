import type { Environment } from '../environment.js';
import type { PrimitiveResult } from '../verdict.js';
import { countReports, presentTick, reportsResult, RestockedProduct, restocksResult } from './background-work.js';
import { importBesideReads, importsResult } from './catalogue-imports.js';
import {
  duplicatesResult,
  eagerCustomerResult,
  killedOrderResult,
  killInMidOrder,
  orderEagerly,
  payAtOnce,
  paymentsResult,
  sendDuplicates,
} from './orders.js';

/** Tries what the shop builds on locks, one primitive after the other. */
export async function tryPrimitives(
  environment: Environment,
  onResult: (result: PrimitiveResult) => void,
): Promise<PrimitiveResult[]> {
  const { shops, database } = environment;
  const results: PrimitiveResult[] = [];
  const note = (result: PrimitiveResult) => {
    results.push(result);
    onResult(result);
  };
  const firstTick = presentTick();
  note(duplicatesResult(await sendDuplicates(environment)));
  note(eagerCustomerResult(await orderEagerly(environment)));
  note(paymentsResult(await payAtOnce(environment)));
  note(importsResult(await importBesideReads(environment)));
  note(reportsResult(await countReports(database, shops.length, firstTick)));

  // One death shows two: the leader is killed while it works on an order.
  const product = new RestockedProduct(environment);
  await product.putOnSale();
  const leader = await product.sellUntilRestocked();
  const victim = shops.find(({ process }) => process.pid === leader);
  if (!victim) throw new Error(`Process ${leader}, which restocked, is none of the shop`);
  note(killedOrderResult(await killInMidOrder(environment, victim)));
  await product.sellUntilRestocked(leader);
  note(restocksResult(await product.count(leader)));
  return results;
}
