use super::*;
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

fn round_trip(compression: Compression, input: &[u8]) -> Vec<u8> {
    let mut compressed = b"before".to_vec();
    compress(compression, input, &mut compressed).unwrap();
    assert_eq!(&compressed[..6], b"before");
    let mut out = b"left over".to_vec();
    decompress(compression.codec(), &compressed[6..], &mut out, LIMIT).unwrap();
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"the quick brown fox "[at % 20] ^ (at / 997) as u8).collect()
}

#[test]
fn every_level_round_trips() {
    // Rule: decode(encode(x)) = x at each codec's ends, on inputs below, at and above the block sizes.
    let levels = [
        (CompressionType::None, 0),
        (CompressionType::Gzip, -1),
        (CompressionType::Gzip, 1),
        (CompressionType::Gzip, 9),
        (CompressionType::Snappy, 0),
        (CompressionType::Lz4, 1),
        (CompressionType::Lz4, 17),
        (CompressionType::Zstd, -131_072),
        (CompressionType::Zstd, 3),
        (CompressionType::Zstd, 19),
    ];
    for (codec, level) in levels {
        let compression = Compression::with_level(codec, level).unwrap();
        for len in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 200_000] {
            assert_eq!(round_trip(compression, &text(len)), text(len), "{codec} {level}, {len} bytes");
        }
    }
}

#[test]
fn levels_a_codec_lacks_are_refused() {
    // Rule: the ranges are Kafka's.
    for (codec, level) in [
        (CompressionType::Gzip, 0),
        (CompressionType::Gzip, 10),
        (CompressionType::Lz4, 0),
        (CompressionType::Lz4, 18),
        (CompressionType::Zstd, 23),
        (CompressionType::Zstd, -131_073),
        (CompressionType::None, 1),
    ] {
        assert_eq!(Compression::with_level(codec, level), Err(CompressionError::BadLevel { codec, level }));
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    // Rule: output ends at the limit, and so does the memory reserved for it.
    let zeros = vec![0; 64 << 20];
    for codec in CompressionType::ALL {
        let mut bomb = Vec::new();
        compress(Compression::new(codec), &zeros, &mut bomb).unwrap();
        for limit in [0, 1, 1000, 70_000] {
            let mut out = Vec::new();
            let got = decompress(codec, &bomb, &mut out, limit);
            assert_eq!(got, Err(CompressionError::TooLarge { limit }), "{codec}");
            assert!(out.capacity() <= limit + 1, "{codec}: {} bytes for a limit of {limit}", out.capacity());
        }
    }
}

#[test]
fn exactly_the_limit_is_allowed() {
    // Rule: the limit is inclusive, whatever the codec knows about its length beforehand.
    for codec in CompressionType::ALL {
        for len in [0, 1, 5000, 70_000] {
            let (mut compressed, mut out) = (Vec::new(), Vec::new());
            compress(Compression::new(codec), &text(len), &mut compressed).unwrap();
            assert_eq!(decompress(codec, &compressed, &mut out, len), Ok(()), "{codec}, {len} bytes");
            assert_eq!(out, text(len));
        }
    }
}

#[test]
fn zstd_streams_without_a_length_are_read() {
    // Rule: a streaming encoder (every Java client) writes no content size; the output is then found by growing.
    let input = vec![b'x'; 900_000];
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.write_all(&input).unwrap();
    let stream = encoder.finish().unwrap();
    let mut out = Vec::new();
    decompress(CompressionType::Zstd, &stream, &mut out, LIMIT).unwrap();
    assert_eq!(out, input);
    let limit = input.len() - 1;
    let got = decompress(CompressionType::Zstd, &stream, &mut out, limit);
    assert_eq!(got, Err(CompressionError::TooLarge { limit }));
}

#[test]
fn bare_and_joined_snappy_is_read() {
    // Rule: a block without framing (librdkafka's way) and streams one after the other both decode, as in snappy-java.
    let bare = snap::raw::Encoder::new().compress_vec(&text(5000)).unwrap();
    let mut out = Vec::new();
    decompress(CompressionType::Snappy, &bare, &mut out, LIMIT).unwrap();
    assert_eq!(out, text(5000));

    let mut joined = Vec::new();
    compress(Compression::new(CompressionType::Snappy), b"one", &mut joined).unwrap();
    compress(Compression::new(CompressionType::Snappy), b"two", &mut joined).unwrap();
    decompress(CompressionType::Snappy, &joined, &mut out, LIMIT).unwrap();
    assert_eq!(out, b"onetwo");
}

#[test]
fn a_snappy_length_that_lies_reserves_nothing() {
    // Rule: five bytes may not claim gigabytes.
    let mut out = Vec::new();
    let lie = [0xff, 0xff, 0xff, 0x7f, 0x00];
    let got = decompress(CompressionType::Snappy, &lie, &mut out, 1 << 30);
    assert_eq!(got, Err(CompressionError::Corrupt { codec: CompressionType::Snappy }));
    assert_eq!(out.capacity(), 0);
}

fn lz4_frame(info: lz4_flex::frame::FrameInfo, input: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lz4_frames_of_every_shape_are_read() {
    // Rule: block size, linked blocks, checksums and content size are the sender's choice.
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    let input = text(700_000);
    for block_size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
        for block_mode in [BlockMode::Independent, BlockMode::Linked] {
            for checksums in [false, true] {
                let info = FrameInfo::new().block_size(block_size).block_mode(block_mode);
                let info = info.block_checksums(checksums).content_checksum(checksums);
                let info = info.content_size(checksums.then_some(input.len() as u64));
                let mut out = Vec::new();
                decompress(CompressionType::Lz4, &lz4_frame(info, &input), &mut out, LIMIT).unwrap();
                assert!(out == input, "{block_size:?} {block_mode:?} {checksums}");
            }
        }
    }
}

#[test]
fn lz4_frames_are_read_by_another_decoder() {
    // Rule: what is written is a frame by the book, stored blocks included.
    let noise: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for input in [text(200_000), noise, Vec::new()] {
        let mut frame = Vec::new();
        compress(Compression::new(CompressionType::Lz4), &input, &mut frame).unwrap();
        let mut out = Vec::new();
        lz4_flex::frame::FrameDecoder::new(frame.as_slice()).read_to_end(&mut out).unwrap();
        assert!(out == input);
    }
}

#[test]
fn damaged_lz4_frames_are_found_by_their_checksums() {
    // Rule: header, block and content checksums are all verified.
    use lz4_flex::frame::FrameInfo;
    let good = lz4_frame(FrameInfo::new().block_checksums(true).content_checksum(true), &text(5000));
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 0x01;
        let got = decompress(CompressionType::Lz4, &bad, &mut Vec::new(), LIMIT);
        assert!(got.is_err(), "position {position}");
    }
}

proptest! {
    #[test]
    fn any_input_round_trips(input in proptest::collection::vec(any::<u8>(), 0..3000), repeat in 1usize..40) {
        // Rule: decode(encode(x)) = x.
        let input = input.repeat(repeat);
        for codec in CompressionType::ALL {
            prop_assert!(round_trip(Compression::new(codec), &input) == input, "{}", codec);
        }
    }

    #[test]
    fn any_bytes_decode_or_err(
        input in proptest::collection::vec(any::<u8>(), 0..300), flips in proptest::collection::vec(any::<(u16, u8)>(), 0..6)
    ) {
        // Rule: neither noise nor a damaged stream panics or goes past the limit.
        for codec in CompressionType::ALL {
            let mut damaged = Vec::new();
            compress(Compression::new(codec), &input, &mut damaged).unwrap();
            for (position, value) in &flips {
                let position = usize::from(*position) % damaged.len().max(1);
                if let Some(byte) = damaged.get_mut(position) {
                    *byte = *value;
                }
            }
            for bytes in [&input, &damaged] {
                let mut out = Vec::new();
                if decompress(codec, bytes, &mut out, 500).is_err() {
                    prop_assert!(out.is_empty());
                }
                prop_assert!(out.capacity() <= 501, "{}: {}", codec, out.capacity());
            }
        }
    }
}
