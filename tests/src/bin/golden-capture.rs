//! A proxy between a client and a broker that keeps the first frame of every (API, version, direction) it sees.
//!
//! ```text
//! golden-capture PORT BROKER-ADDRESS FOLDER "CLIENT NAME"
//! ```
//! The broker has to advertise the proxy's address. Frames above 4 KiB are not kept.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use walser_protocol::header::RequestHeader;
use walser_protocol::{ApiKey, ErrorCode, Reader};
use walser_tests::golden::{Golden, Kind};

const FRAME_KEPT_MAX: usize = 4096;

/// What the requests of one connection were, by correlation id.
type Pending = Arc<Mutex<HashMap<i32, (ApiKey, i16)>>>;

struct Keeper {
    folder: PathBuf,
    client: String,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, broker, folder, client] = arguments.as_slice() else {
        eprintln!("usage: golden-capture PORT BROKER-ADDRESS FOLDER \"CLIENT NAME\"");
        std::process::exit(2);
    };
    std::fs::create_dir_all(folder)?;
    let keeper = Arc::new(Keeper { folder: folder.into(), client: client.clone() });
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    println!("listening on {}", listener.local_addr()?);
    for inbound in listener.incoming() {
        let (inbound, outbound) = (inbound?, TcpStream::connect(broker)?);
        let pending = Pending::default();
        for (kind, from, to) in
            [(Kind::Request, inbound.try_clone()?, outbound.try_clone()?), (Kind::Response, outbound, inbound)]
        {
            let (keeper, pending) = (Arc::clone(&keeper), Arc::clone(&pending));
            std::thread::spawn(move || {
                // Either side may hang up at any time: that ends the copying, and is no failure.
                if let Err(error) = copy(kind, &from, &to, &keeper, &pending) {
                    eprintln!("{}: {error}", kind.name());
                }
                to.shutdown(std::net::Shutdown::Both).ok();
            });
        }
    }
    Ok(())
}

fn copy(kind: Kind, mut from: &TcpStream, mut to: &TcpStream, keeper: &Keeper, pending: &Pending) -> io::Result<()> {
    loop {
        let mut size = [0; 4];
        if from.read(&mut size[..1])? == 0 {
            return Ok(());
        }
        from.read_exact(&mut size[1..])?;
        let mut frame = vec![0; u32::from_be_bytes(size) as usize];
        from.read_exact(&mut frame)?;
        if let Some((key, version)) = identify(kind, &frame, pending) {
            keeper.keep(kind, key, version, &frame)?;
        }
        to.write_all(&[&size, frame.as_slice()].concat())?;
    }
}

fn identify(kind: Kind, frame: &[u8], pending: &Pending) -> Option<(ApiKey, i16)> {
    let mut pending = pending.lock().expect("no panic holds it");
    match kind {
        Kind::Request => {
            let header = RequestHeader::decode(&mut Reader::new(frame)).ok()?;
            let key = ApiKey::from_wire(header.api_key)?;
            pending.insert(header.correlation_id, (key, header.api_version));
            Some((key, header.api_version))
        }
        Kind::Response => {
            let mut reader = Reader::new(frame);
            let (key, version) = pending.remove(&reader.i32("correlation_id").ok()?)?;
            // A broker that does not know the version of an ApiVersions request answers in version 0.
            let refused =
                key == ApiKey::ApiVersions && reader.i16("error_code") == Ok(ErrorCode::UnsupportedVersion.code());
            Some((key, if refused { 0 } else { version }))
        }
    }
}

impl Keeper {
    fn keep(&self, kind: Kind, key: ApiKey, version: i16, frame: &[u8]) -> io::Result<()> {
        let golden = Golden { client: self.client.clone(), kind, key, version, frame: frame.to_vec() };
        let path = self.folder.join(golden.file_name());
        if frame.len() > FRAME_KEPT_MAX || path.exists() {
            return Ok(());
        }
        std::fs::write(path, golden.to_text())
    }
}
