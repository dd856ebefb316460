//! A client that waits for each answer, and a look at `/metrics`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use walser_protocol::header::{ResponseHeader, encode_request};
use walser_protocol::messages::Body;
use walser_protocol::{ApiKey, Reader};

/// Generous: machines that test are busy.
pub const ANSWER_WAIT: Duration = Duration::from_secs(120);

pub struct Client(TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
        Self(stream)
    }

    /// Sends a request; the response behind its header.
    pub fn call(&mut self, key: ApiKey, version: i16, body: &dyn Body) -> Vec<u8> {
        self.0.write_all(&encode_request(key, version, 1, None, body).unwrap()).unwrap();
        let mut size = [0; 4];
        self.0.read_exact(&mut size).unwrap();
        let mut response = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.0.read_exact(&mut response).unwrap();
        let mut reader = Reader::new(&response);
        ResponseHeader::decode(&mut reader, key.response_header_version(version)).unwrap();
        reader.left().to_vec()
    }
}

pub fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
