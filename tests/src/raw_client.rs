//! Speaks frames to a broker over a blocking socket: requests as bytes or as messages, answers in the order they come.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::BytesMut;
use thiserror::Error;
use walser_protocol::header::{ResponseHeader, encode_request};
use walser_protocol::messages::Body;
use walser_protocol::{ApiKey, DecodeError, EncodeError, Reader};

/// No broker needs longer for an answer: above what any request here lets it wait, on a machine that is busy with others.
const READ_DEADLINE: Duration = Duration::from_secs(300);
/// More than any answer in these tests; a size above it is nonsense.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Error)]
pub enum ClientError {
    /// End of the stream, or a reset: what a broker does to a request it will not answer.
    #[error("the broker closed the connection")]
    Closed,
    #[error("no answer in time")]
    TimedOut,
    #[error("socket: {0}")]
    Socket(io::Error),
    #[error("an answer of {0} bytes")]
    BadSize(i32),
    #[error("answer to request {got}, want {want}")]
    OutOfOrder { got: i32, want: i32 },
    #[error("cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
    #[error("cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Socket(error),
        }
    }
}

/// The body of an answer, its header taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseBody {
    frame: Vec<u8>,
    body_at: usize,
}

impl ResponseBody {
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.body_at..]
    }

    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self.bytes())
    }
}

/// One connection. The client id is `walser-tests`.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    next_correlation_id: i32,
}

impl RawClient {
    pub fn connect(address: &str) -> io::Result<Self> {
        let resolved: SocketAddr = address
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::other(format!("{address} resolves to nothing")))?;
        let stream = TcpStream::connect(resolved)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_DEADLINE))?;
        Ok(Self { stream, next_correlation_id: 1 })
    }

    /// For what the methods here do not offer: half-closing, tiny writes, a timeout of one's own.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The id that the next request sent through [`Self::send`] gets.
    pub fn next_correlation_id(&self) -> i32 {
        self.next_correlation_id
    }

    /// Sends bytes as they are, size and header included.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends a request and returns its correlation id; several may be sent before the first answer is read.
    pub fn send(&mut self, key: ApiKey, version: i16, body: &dyn Body) -> Result<i32, ClientError> {
        let correlation_id = self.next_correlation_id;
        let frame = encode_request(key, version, correlation_id, Some("walser-tests"), body)?;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        self.send_raw(&frame)?;
        Ok(correlation_id)
    }

    /// The next frame, its size taken off.
    pub fn receive_frame(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = i32::from_be_bytes(size);
        let len =
            usize::try_from(size).ok().filter(|len| *len <= RESPONSE_BYTES_MAX).ok_or(ClientError::BadSize(size))?;
        let mut frame = vec![0; len];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// The answer to the request of this key, version and correlation id; any other answer is an error.
    pub fn receive(&mut self, key: ApiKey, version: i16, correlation_id: i32) -> Result<ResponseBody, ClientError> {
        let frame = self.receive_frame()?;
        let mut reader = Reader::new(&frame);
        let header = ResponseHeader::decode(&mut reader, key.response_header_version(version))?;
        if header.correlation_id != correlation_id {
            return Err(ClientError::OutOfOrder { got: header.correlation_id, want: correlation_id });
        }
        let body_at = frame.len() - reader.left().len();
        Ok(ResponseBody { frame, body_at })
    }

    /// One request and its answer.
    pub fn call(&mut self, key: ApiKey, version: i16, body: &dyn Body) -> Result<ResponseBody, ClientError> {
        let correlation_id = self.send(key, version, body)?;
        self.receive(key, version, correlation_id)
    }
}

/// The whole frame of a request, for tests that break it before they send it.
pub fn request_frame(key: ApiKey, version: i16, correlation_id: i32, body: &dyn Body) -> Result<BytesMut, EncodeError> {
    encode_request(key, version, correlation_id, Some("walser-tests"), body)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use walser_protocol::header::encode_response;
    use walser_protocol::messages::metadata::{MetadataRequest, MetadataResponse};

    #[test]
    fn a_call_gets_its_own_answer() {
        // Rule: an answer is matched by correlation id, and the end of the stream is told apart from an error.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for correlation_id in [1, 7] {
                let mut size = [0; 4];
                stream.read_exact(&mut size).unwrap();
                let mut request = vec![0; i32::from_be_bytes(size) as usize];
                stream.read_exact(&mut request).unwrap();
                let response = MetadataResponse { controller_id: 5, ..MetadataResponse::default() };
                stream.write_all(&encode_response(ApiKey::Metadata, 9, correlation_id, &response).unwrap()).unwrap();
            }
        });
        let mut client = RawClient::connect(&address).unwrap();
        let answer = client.call(ApiKey::Metadata, 9, &MetadataRequest::default()).unwrap();
        assert_eq!(MetadataResponse::decode(&mut answer.reader(), 9).unwrap().controller_id, 5);
        let second = client.call(ApiKey::Metadata, 9, &MetadataRequest::default());
        assert!(matches!(second, Err(ClientError::OutOfOrder { got: 7, want: 2 })), "{second:?}");
        server.join().unwrap();
        assert!(matches!(client.receive_frame(), Err(ClientError::Closed)));
    }
}
