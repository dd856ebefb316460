//! One blocking connection: frames out, frames in.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use walser_protocol::header::{ResponseHeader, encode_request};
use walser_protocol::messages::Body;
use walser_protocol::{ApiKey, Reader};

pub const CLIENT_ID: &str = "walser-bench";
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any answer to what is sent here.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// The same connection twice, for a thread that sends and one that receives.
    pub fn split(self) -> io::Result<(Self, Self)> {
        let stream = self.stream.try_clone()?;
        Ok((Self { stream, received: Vec::new() }, self))
    }

    /// Sends one whole frame.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.stream.write_all(frame)
    }

    /// The next frame without its size; it is overwritten by the one after.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let len = usize::try_from(i32::from_be_bytes(size)).ok().filter(|len| *len <= RESPONSE_BYTES_MAX);
        self.received.resize(len.ok_or_else(|| io::Error::other("an answer of a senseless size"))?, 0);
        self.stream.read_exact(&mut self.received)?;
        Ok(&self.received)
    }

    /// One request and the body of its answer.
    pub fn call(&mut self, key: ApiKey, version: i16, body: &dyn Body) -> io::Result<&[u8]> {
        let frame = encode_request(key, version, 0, Some(CLIENT_ID), body).map_err(io::Error::other)?;
        self.send(&frame)?;
        let answer = self.receive()?;
        let mut reader = Reader::new(answer);
        ResponseHeader::decode(&mut reader, key.response_header_version(version)).map_err(io::Error::other)?;
        Ok(reader.left())
    }
}
