// kafkajs: node kafkajs_client.js BOOTSTRAP PREFIX [CASE...]
//
// Version 2 cannot be assigned partitions without a group, so it writes, and prints one line per topic for the Java
// program to read it with: `verify TOPIC COUNT BASE` or `verify-sizes TOPIC BYTES,BYTES...`. Then `ok CASE` or
// `FAIL CASE: why`; the exit code says whether a case failed.
const { Kafka, logLevel, Partitioners } = require('kafkajs')
const codecs = require('./codecs')

const PARTITIONS = 6
const DEADLINE_MS = 300_000
// A machine that is slow must not have the client send anything twice, or give it up.
const REQUEST_MS = 120_000
// message.max.bytes of a broker that says nothing else.
const BATCH_BYTES_MAX = 1_048_588
const [bootstrap, prefix, ...wanted] = process.argv.slice(2)

const kafka = new Kafka({ clientId: 'walser-tests', brokers: [bootstrap], connectionTimeout: REQUEST_MS, requestTimeout: DEADLINE_MS, logLevel: logLevel.NOTHING })
const admin = kafka.admin()

function require_(holds, message) {
  if (!holds) throw new Error(message)
}

async function waitFor(what, condition) {
  const deadline = Date.now() + DEADLINE_MS
  while (!(await condition())) {
    require_(Date.now() < deadline, `gave up waiting: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

// The record at position `index` of a run; the programs in other languages write the same.
function pattern(index, base, partition) {
  let value = `${index}:`
  for (let position = 0; position < (index * 7) % 100; position++) value += String.fromCharCode(97 + ((index + position) % 26))
  return {
    key: `key-${String(index).padStart(8, '0')}`,
    value,
    headers: index % 3 === 0 ? {} : { n: String(index), empty: '' },
    timestamp: String(base + index),
    ...(partition === undefined ? {} : { partition }),
  }
}

async function create(topic) {
  require_(await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }], waitForLeaders: true, timeout: REQUEST_MS }), `${topic} was there`)
  await waitFor(`the leaders of ${topic} answer`, () => admin.fetchTopicOffsets(topic).then(found => found.length === PARTITIONS, () => false))
}

async function exists(topic) {
  return (await admin.listTopics()).includes(topic)
}

async function withProducer(settings, body) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false, ...settings })
  await producer.connect()
  try {
    return await body(producer)
  } finally {
    await producer.disconnect()
  }
}

async function total(topic) {
  return (await admin.fetchTopicOffsets(topic)).reduce((sum, one) => sum + Number(one.high), 0)
}

async function write(name, count, { producer: settings = {}, send = {} }) {
  const topic = `${prefix}-${name}`
  const base = Date.now() - 3_600_000
  await create(topic)
  await withProducer(settings, async producer => {
    for (let first = 0; first < count; first += 5_000) {
      const messages = []
      for (let index = first; index < Math.min(first + 5_000, count); index++) messages.push(pattern(index, base))
      for (const result of await producer.send({ topic, messages, timeout: REQUEST_MS, ...send })) require_(!result.errorCode, `error ${result.errorCode}`)
    }
  })
  if (send.acks === 0) await waitFor(`${count} records in ${topic}`, async () => (await total(topic)) >= count)
  require_((await total(topic)) === count, `${await total(topic)} records, want ${count}`)
  console.log(`verify ${topic} ${count} ${base}`)
}

async function sizes() {
  const topic = `${prefix}-sizes`
  const fit = [0, BATCH_BYTES_MAX - 100, 1000]
  const filled = bytes => Buffer.from(Uint8Array.from({ length: bytes }, (_, position) => position * 31 + bytes))
  await create(topic)
  await withProducer({}, async producer => {
    const send = bytes => producer.send({ topic, messages: [{ partition: 1, value: filled(bytes) }], timeout: REQUEST_MS })
    await send(fit[0])
    await send(fit[1])
    const problem = await send(BATCH_BYTES_MAX - 60).then(() => null, error => error)
    require_(problem !== null, 'a batch larger than message.max.bytes was taken')
    require_((problem.cause ?? problem).type === 'MESSAGE_TOO_LARGE', `too large a batch: ${problem}`)
    await send(fit[2])
  })
  console.log(`verify-sizes ${topic} ${fit}`)
}

async function offsets() {
  const [count, written] = [5_000, 5]
  const topic = `${prefix}-offsets`
  const base = Date.now() - 3_600_000
  await create(topic)
  await withProducer({}, async producer => {
    for (let first = 0; first < count; first += 500) {
      const messages = []
      for (let index = first; index < first + 500; index++) messages.push(pattern(index, base, index % written))
      for (const result of await producer.send({ topic, messages, timeout: REQUEST_MS })) {
        require_(Number(result.baseOffset) === first / written, `partition ${result.partition}: acknowledged at ${result.baseOffset}, want ${first / written}`)
      }
    }
  })
  for (const one of await admin.fetchTopicOffsets(topic)) {
    const end = one.partition < written ? count / written : 0
    require_(Number(one.low) === 0, `partition ${one.partition}: earliest is ${one.low}`)
    require_(Number(one.high) === end, `partition ${one.partition}: latest is ${one.high}, want ${end}`)
  }
  for (const index of [0, 1, 7, 2_500, count - written, count - 1, count, count + 1_000_000]) {
    for (const { partition, offset } of await admin.fetchTopicOffsetsByTimestamp(topic, base + index)) {
      const first = index + ((((partition - index) % written) + written) % written)
      const end = partition < written ? count / written : 0
      // The library answers with the end where no record is that young.
      const want = partition < written && first < count ? Math.floor(first / written) : end
      require_(Number(offset) === want, `partition ${partition}, timestamp of ${index}: ${offset}, want ${want}`)
    }
  }
  console.log(`verify ${topic} ${count} ${base}`)
}

// Deletes and re-creates a topic under a running producer, which has to find the new one.
async function recreate() {
  const topic = `${prefix}-recreate`
  const base = Date.now() - 3_600_000
  const enough = 300
  const state = { next: 0, firstOfNew: Infinity, ofOld: 0, ofNew: 0, stop: false }
  await create(topic)
  await withProducer({ metadataMaxAge: 1_000, retry: { retries: 2 } }, async producer => {
    const writing = (async () => {
      while (!state.stop) {
        const indexes = Array.from({ length: 20 }, () => state.next++)
        try {
          await producer.send({ topic, messages: indexes.map(index => pattern(index, base, index % PARTITIONS)), timeout: REQUEST_MS })
          if (indexes[0] >= state.firstOfNew) state.ofNew += indexes.length
          else state.ofOld += indexes.length
        } catch (error) {
          console.error(`running producer: ${error}`)
          await new Promise(resolve => setTimeout(resolve, 20))
        }
      }
    })()
    try {
      await waitFor('records of the first topic are acknowledged', () => state.ofOld >= enough)
      await admin.deleteTopics({ topics: [topic], timeout: REQUEST_MS })
      await waitFor(`topic ${topic} is gone`, async () => !(await exists(topic)))
      await create(topic)
      state.firstOfNew = state.next + 1
      await waitFor('records of the second topic are acknowledged', () => state.ofNew >= enough)
    } finally {
      state.stop = true
      await writing
    }
  })
  // What was sent in between may be in either topic or in none.
  console.log(`verify ${topic} +${state.ofNew} ${base}`)
}

async function main() {
  await codecs.ready()
  await admin.connect()
  const cases = { default: () => write('default', 100_000, {}) }
  for (const codec of Object.keys(codecs.types)) cases[`codec-${codec}`] = () => write(`codec-${codec}`, 5_000, { send: { compression: codecs.types[codec] } })
  for (const [name, acks] of [['0', 0], ['1', 1], ['all', -1]]) cases[`acks-${name}`] = () => write(`acks-${name}`, 5_000, { send: { acks } })
  cases.idempotent = () => write('idempotent', 20_000, { producer: { idempotent: true } })
  Object.assign(cases, { sizes, offsets, recreate })
  let failures = 0
  for (const [name, body] of Object.entries(cases)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue
    try {
      await body()
      console.log(`ok ${name}`)
    } catch (error) {
      failures++
      console.log(`FAIL ${name}: ${error}`)
      console.error(error)
    }
  }
  await admin.disconnect()
  process.exitCode = failures > 0 ? 1 : 0
}

main()
