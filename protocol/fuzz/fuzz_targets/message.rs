//! Any message at any version: what decodes is encoded, and that decodes to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walser_protocol::{Reader, Writer};

type Check = fn(&[u8], i16);

macro_rules! checks {
    ($($($segment:ident)::+;)*) => {
        const CHECKS: &[Check] = &[$(
            |bytes, raw_version| {
                use walser_protocol::messages::*;
                let (min, max) = ($($segment)::+::VERSION_MIN, $($segment)::+::VERSION_MAX);
                let version = min + raw_version.rem_euclid(max - min + 1);
                let Ok(message) = $($segment)::+::decode(&mut Reader::new(bytes), version) else { return };
                let len = message.encoded_len(version).expect("what was read can be written");
                let mut writer = Writer::with_capacity(len);
                message.encode(&mut writer, version).expect("what was read can be written");
                let written = writer.into_inner();
                assert_eq!(written.len(), len);
                let mut reader = Reader::new(&written);
                let again = $($segment)::+::decode(&mut reader, version).expect("what was written can be read");
                assert!(reader.expect_end().is_ok());
                // Through text, as NaN differs from itself.
                assert_eq!(format!("{message:?}"), format!("{again:?}"));
            },
        )*];
    };
}
walser_protocol::for_each_message!(checks);

fuzz_target!(|data: &[u8]| {
    let Some(([kind, small, version], bytes)) = data.split_first_chunk::<3>() else { return };
    let index = usize::from(*kind) * 2 + usize::from(small & 1);
    CHECKS[index % CHECKS.len()](bytes, i16::from(*version));
});
