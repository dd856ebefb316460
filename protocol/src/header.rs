//! Headers of requests (version 1, and 2 with tagged fields) and responses (version 0, and 1 with tagged fields).
//!
//! ```text
//! request   int16 API key · int16 version · int32 correlation id · nullable string client id · tagged fields (2)
//! response  int32 correlation id · tagged fields (1)
//! ```
//! The client id is never compact: a broker must be able to read the header of an ApiVersions request of any version.

use bytes::BytesMut;

use crate::api::ApiKey;
use crate::frame::SIZE_LEN;
use crate::messages::Body;
use crate::reader::{DecodeError, Reader};
use crate::writer::{EncodeError, Writer};

/// Key and version are raw: they may be of an API nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads the header, tagged fields included where key and version have them. Of an unknown key only the first eight
    /// bytes and the client id are read; of ApiVersions in a version not known here likewise, as the answer needs no more.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let api_key = reader.i16("request_api_key")?;
        let api_version = reader.i16("request_api_version")?;
        let correlation_id = reader.i32("correlation_id")?;
        let client_id = reader.nullable_string(false, true, "client_id")?;
        if let Some(key) = ApiKey::from_wire(api_key)
            && api_version <= key.spec().version_max
            && key.request_header_version(api_version) == 2
        {
            reader.skip_tagged_fields()?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    pub fn encode(&self, writer: &mut Writer, header_version: i16) -> Result<(), EncodeError> {
        writer.i16(self.api_key);
        writer.i16(self.api_version);
        writer.i32(self.correlation_id);
        writer.nullable_string(false, true, "client_id", self.client_id)?;
        if header_version >= 2 {
            writer.tag_count(0);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    pub correlation_id: i32,
}

impl ResponseHeader {
    pub fn decode(reader: &mut Reader<'_>, header_version: i16) -> Result<Self, DecodeError> {
        let correlation_id = reader.i32("correlation_id")?;
        if header_version >= 1 {
            reader.skip_tagged_fields()?;
        }
        Ok(Self { correlation_id })
    }

    pub fn encode(&self, writer: &mut Writer, header_version: i16) {
        writer.i32(self.correlation_id);
        if header_version >= 1 {
            writer.tag_count(0);
        }
    }
}

/// A whole request, size included, in a buffer of exactly its length.
pub fn encode_request(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    body: &dyn Body,
) -> Result<BytesMut, EncodeError> {
    let header = RequestHeader { api_key: key.code(), api_version: version, correlation_id, client_id };
    encode_frame(&|writer| {
        header.encode(writer, key.request_header_version(version))?;
        body.encode(writer, version)
    })
}

/// A whole response, size included, in a buffer of exactly its length.
pub fn encode_response(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &dyn Body,
) -> Result<BytesMut, EncodeError> {
    encode_frame(&|writer| {
        ResponseHeader { correlation_id }.encode(writer, key.response_header_version(version));
        body.encode(writer, version)
    })
}

fn encode_frame(content: &dyn Fn(&mut Writer) -> Result<(), EncodeError>) -> Result<BytesMut, EncodeError> {
    let mut measure = Writer::measuring();
    content(&mut measure)?;
    let len = measure.len();
    let size = i32::try_from(len).map_err(|_| EncodeError::TooLong { field: "size", len })?;
    let mut writer = Writer::with_capacity(SIZE_LEN + len);
    writer.i32(size);
    content(&mut writer)?;
    Ok(writer.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::api_versions::ApiVersionsRequest;
    use crate::messages::metadata::{MetadataRequest, MetadataResponse};

    #[test]
    fn a_request_round_trips_in_both_header_versions() {
        // Rule: header version follows the key's flexibility, the client id stays non-compact.
        for version in [8, 9] {
            let request = MetadataRequest::default();
            let frame = encode_request(ApiKey::Metadata, version, 7, Some("me"), &request).unwrap();
            assert_eq!(frame[..4], (frame.len() as i32 - 4).to_be_bytes());
            let mut reader = Reader::new(&frame[4..]);
            let header = RequestHeader::decode(&mut reader).unwrap();
            assert_eq!((header.api_key, header.api_version, header.correlation_id), (3, version, 7));
            assert_eq!(header.client_id, Some("me"));
            assert_eq!(MetadataRequest::decode(&mut reader, version), Ok(request));
            assert_eq!(reader.expect_end(), Ok(()));
        }
    }

    #[test]
    fn a_response_fills_its_buffer_exactly() {
        // Rule: one reservation, of exactly the frame's length.
        let frame = encode_response(ApiKey::Metadata, 12, 1, &MetadataResponse::default()).unwrap();
        assert_eq!(frame[..9], [0, 0, 0, frame[3], 0, 0, 0, 1, 0]);
        assert_eq!(frame.len(), 4 + usize::from(frame[3]));
    }

    #[test]
    fn future_versions_of_api_versions_keep_a_readable_header() {
        // Rule: correlation id and client id are read even when the version is not known here.
        let mut frame = encode_request(ApiKey::ApiVersions, 3, 5, None, &ApiVersionsRequest::default()).unwrap();
        frame[6..8].copy_from_slice(&99_i16.to_be_bytes());
        let header = RequestHeader::decode(&mut Reader::new(&frame[4..])).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (99, 5));
    }
}
