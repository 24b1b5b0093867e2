import { once } from 'node:events';

/** Books when the test says so. */
export class CarrierClient {
  async book(orderId: string): Promise<string> {
    if (process.send) {
      process.send('booking');
      await once(process, 'message');
    }
    return `parcel of ${orderId}`;
  }
}
