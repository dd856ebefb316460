//! Every request and response of Kafka 4.4, and the records it keeps in its internal topics, generated from `schema/`.
//!
//! One module per API key with Kafka's own struct names; where a request and its response name a struct alike, the two are
//! called `Request…` and `Response…`. [`records`] has one module per family of record types.

use crate::reader::DecodeError;
use crate::writer::{EncodeError, Writer};

/// A top-level message of any type, for code that only writes.
pub trait Body {
    fn encode(&self, writer: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// What the generated modules use.
pub(crate) mod prelude {
    pub(crate) use super::{Body, check_version, unsupported};
    pub(crate) use crate::reader::{DecodeError, Reader};
    pub(crate) use crate::types::{Records, Uuid};
    pub(crate) use crate::writer::{EncodeError, Writer};
}

macro_rules! message_body {
    ($message:ty) => {
        impl Body for $message {
            fn encode(&self, writer: &mut Writer, version: i16) -> Result<(), EncodeError> {
                Self::encode(self, writer, version)
            }
        }
    };
}

/// Either error, for [`check_version`].
pub(crate) trait VersionError {
    fn unsupported_version(version: i16, min: i16, max: i16) -> Self;
}

impl VersionError for DecodeError {
    fn unsupported_version(version: i16, min: i16, max: i16) -> Self {
        Self::UnsupportedVersion { version, min, max }
    }
}

impl VersionError for EncodeError {
    fn unsupported_version(version: i16, min: i16, max: i16) -> Self {
        Self::UnsupportedVersion { version, min, max }
    }
}

pub(crate) fn check_version<E: VersionError>(version: i16, min: i16, max: i16) -> Result<(), E> {
    if (min..=max).contains(&version) { Ok(()) } else { Err(E::unsupported_version(version, min, max)) }
}

#[cold]
pub(crate) fn unsupported(field: &'static str, version: i16) -> Result<(), EncodeError> {
    Err(EncodeError::UnsupportedField { field, version })
}

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// Records of internal topics, of control batches and of small files.
pub mod records {
    include!(concat!(env!("OUT_DIR"), "/records.rs"));
}

include!(concat!(env!("OUT_DIR"), "/message_list.rs"));
