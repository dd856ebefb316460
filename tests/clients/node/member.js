// One member of a group: node member.js BOOTSTRAP TOPIC GROUP [KEY=MS...]
//
// Prints `r PARTITION OFFSET` for each record, then commits; a signal to end makes it leave.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, groupId, ...pairs] = process.argv.slice(2)
const settings = Object.fromEntries(pairs.map(pair => pair.split('=')).map(([key, value]) => [key, Number(value)]))
const kafka = new Kafka({ clientId: 'walser-tests', brokers: [bootstrap], logLevel: logLevel.WARN, retry: { retries: 100, maxRetryTime: 1000 } })
const consumer = kafka.consumer({ groupId, ...settings })

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      process.stdout.write(batch.messages.map(message => `r ${batch.partition} ${message.offset}\n`).join(''))
      const offset = String(BigInt(batch.lastOffset()) + 1n)
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      await heartbeat()
    }
  })
}

process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})
main().catch(error => {
  console.error(error)
  process.exit(1)
})
