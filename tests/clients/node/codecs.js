// The codecs that kafkajs leaves to its users to plug in.
const { CompressionTypes, CompressionCodecs } = require('kafkajs')
const snappy = require('snappyjs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

// Bare snappy without the framing of the Java library: that is what users of kafkajs send.
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(snappy.uncompress(buffer)),
})

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})

CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

exports.ready = () => zstd.init()
exports.types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
