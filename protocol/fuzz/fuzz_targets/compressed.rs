//! Every codec: what it gives stays within the limit, and what it packed it unpacks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walser_protocol::records::compression::{Compression, CompressionType, compress, decompress};

const LIMIT: usize = 1 << 18;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, input)) = data.split_first() else { return };
    let Ok(codec) = CompressionType::from_id(choice % 5) else { return };
    let mut out = Vec::new();
    if choice < 0x80 {
        let done = decompress(codec, input, &mut out, LIMIT);
        assert!(out.len() <= LIMIT, "{codec} gave {} bytes: {done:?}", out.len());
    } else if input.len() <= LIMIT {
        let mut packed = Vec::new();
        compress(Compression::new(codec), input, &mut packed).expect("anything can be packed");
        decompress(codec, &packed, &mut out, LIMIT).expect("what was packed can be unpacked");
        assert_eq!(out, input);
    }
});
