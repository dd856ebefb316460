//! Every message by name: decode and encode it, or make one up from the schema. What the codec's oracles share.

use std::collections::BTreeMap;
use std::path::Path;

use walser_codegen::{Message, Sampler, Schema, Style, parse};
use walser_protocol::{DecodeError, EncodeError, Reader, Writer};

/// Why a message did not come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    UnknownMessage,
    Decode(DecodeError),
    Encode(EncodeError),
    /// `encoded_len` and `encode` disagree.
    Length {
        measured: usize,
        written: usize,
    },
}

impl From<DecodeError> for CodecError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<EncodeError> for CodecError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

type Translate = fn(&[u8], i16, i16) -> Result<Vec<u8>, CodecError>;
type EncodeDefault = fn(i16) -> Result<Vec<u8>, CodecError>;
type Decode = fn(&[u8], i16) -> bool;

/// A top-level message of `walser_protocol::messages`.
#[derive(Clone, Copy)]
pub struct Codec {
    /// Decodes at the first version, encodes at the second; all bytes must be used.
    pub translate: Translate,
    /// The encoding of the default value.
    pub encode_default: EncodeDefault,
    /// Decodes and drops, and says whether it went well; bytes may be left.
    pub decode: Decode,
}

macro_rules! codecs {
    ($($($segment:ident)::+;)*) => {
        fn all_codecs() -> Vec<(&'static str, Codec)> {
            vec![$((
                [$(stringify!($segment)),+].last().copied().unwrap_or_default(),
                Codec {
                    translate: |bytes, from, to| {
                        use walser_protocol::messages::*;
                        let mut reader = Reader::new(bytes);
                        let message = $($segment)::+::decode(&mut reader, from)?;
                        reader.expect_end()?;
                        encode(&|writer| message.encode(writer, to), message.encoded_len(to))
                    },
                    encode_default: |version| {
                        use walser_protocol::messages::*;
                        let message = $($segment)::+::default();
                        encode(&|writer| message.encode(writer, version), message.encoded_len(version))
                    },
                    decode: |bytes, version| {
                        use walser_protocol::messages::*;
                        $($segment)::+::decode(&mut Reader::new(bytes), version).is_ok()
                    },
                },
            ),)*]
        }
    };
}
walser_protocol::for_each_message!(codecs);

fn encode(
    write: &dyn Fn(&mut Writer) -> Result<(), EncodeError>,
    measured: Result<usize, EncodeError>,
) -> Result<Vec<u8>, CodecError> {
    let mut writer = Writer::with_capacity(0);
    write(&mut writer)?;
    let (written, measured) = (writer.len(), measured?);
    if written != measured {
        return Err(CodecError::Length { measured, written });
    }
    Ok(writer.into_inner().to_vec())
}

/// The codecs and schemas of all messages, by name.
pub struct Catalog {
    codecs: BTreeMap<&'static str, Codec>,
    schemas: Vec<Schema>,
}

impl Catalog {
    /// Reads the schema text of the source tree this was built from.
    pub fn load() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/schema");
        let mut schemas = Vec::new();
        for folder in [root.clone(), root.join("records")] {
            let mut paths: Vec<_> =
                std::fs::read_dir(folder).expect("schemas").map(|entry| entry.expect("entry").path()).collect();
            paths.sort();
            for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "kmsg")) {
                let text = std::fs::read_to_string(path).expect("schema");
                schemas.push(parse(&text).expect("the build parsed it too"));
            }
        }
        Self { codecs: all_codecs().into_iter().collect(), schemas }
    }

    pub fn schemas(&self) -> &[Schema] {
        &self.schemas
    }

    /// Every message in the order of the schema files.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.schemas.iter().flat_map(|schema| &schema.messages)
    }

    pub fn message(&self, name: &str) -> Option<&Message> {
        self.messages().find(|message| message.name == name)
    }

    pub fn codec(&self, name: &str) -> Result<Codec, CodecError> {
        self.codecs.get(name).copied().ok_or(CodecError::UnknownMessage)
    }

    /// Decodes at version `from` and encodes at version `to`.
    pub fn translate(&self, name: &str, from: i16, to: i16, bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        (self.codec(name)?.translate)(bytes, from, to)
    }

    /// Random bytes in the canonical encoding.
    pub fn sample(&self, name: &str, version: i16, seed: u64) -> Option<Vec<u8>> {
        self.message(name).map(|message| Sampler::new(seed, Style::Random).message(message, version))
    }
}
