// Prints the version of kafkajs, then the digest of the first COUNT records of each topic.
// The canonical form of a record is that of tests/support/record_digest.py.
//
// node record_digest.js FOLDER BOOTSTRAP TOPIC=COUNT...      FOLDER: where node_modules is
'use strict';

const { createHash, randomUUID } = require('crypto');
const { createRequire } = require('module');

const [folder, bootstrap, ...topics] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { Kafka, logLevel } = load('kafkajs');

function sized(data) {
  const length = Buffer.alloc(4);
  length.writeInt32BE(data === null || data === undefined ? -1 : data.length);
  return data === null || data === undefined ? [length] : [length, data];
}

function canonical(message) {
  const head = Buffer.alloc(16);
  head.writeBigInt64BE(BigInt(message.offset), 0);
  head.writeBigInt64BE(BigInt(message.timestamp), 8);
  // an object: header keys of a record are unique in the topics that are read
  const headers = Object.entries(message.headers);
  const count = Buffer.alloc(4);
  count.writeInt32BE(headers.length);
  const parts = [head, ...sized(message.key), ...sized(message.value), count];
  for (const [key, value] of headers) {
    parts.push(...sized(Buffer.from(key)), ...sized(value));
  }
  return Buffer.concat(parts);
}

async function print(kafka, topic, count) {
  const consumer = kafka.consumer({ groupId: randomUUID() });
  const digest = createHash('sha256');
  let read = 0;
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    // kafkajs starts again by itself after an error that may pass
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) {
          if (read < count) {
            digest.update(canonical(message));
            read += 1;
          }
        }
        if (read >= count) {
          resolve();
        }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  console.log(`${topic} ${read} ${digest.digest('hex')}`);
}

async function main() {
  console.log(load('kafkajs/package.json').version);
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  for (const wanted of topics) {
    const [topic, count] = wanted.split('=');
    await print(kafka, topic, Number(count));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
