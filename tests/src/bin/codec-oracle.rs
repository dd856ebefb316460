//! Our codec as a server on standard input and output, for oracles written in other languages.
//!
//! ```text
//! request   uint8 operation · uint16 length and name · int16 from · int16 to · int64 seed · int32 length and bytes
//! reply     uint8 0 for done, 1 for refused · int32 length and bytes (of the reason, when refused)
//! ```
//! Operations: `L` every message as lines "name min max" · `T` decode at version `from`, encode at `to` · `S` a random message
//! of version `from` · `D` the default of version `from`. The end of the input ends it.

use std::io::{self, BufReader, BufWriter, Read, Write};

use walser_tests::codec::Catalog;

struct Request {
    operation: u8,
    name: String,
    from: i16,
    to: i16,
    seed: u64,
    bytes: Vec<u8>,
}

fn main() -> io::Result<()> {
    let catalog = Catalog::load();
    let mut input = BufReader::new(io::stdin().lock());
    let mut output = BufWriter::new(io::stdout().lock());
    while let Some(request) = read_request(&mut input)? {
        let (status, bytes) = match answer(&catalog, &request) {
            Ok(bytes) => (0_u8, bytes),
            Err(reason) => (1, reason.into_bytes()),
        };
        output.write_all(&[status])?;
        output.write_all(&u32::try_from(bytes.len()).expect("a small message").to_be_bytes())?;
        output.write_all(&bytes)?;
        output.flush()?;
    }
    Ok(())
}

fn answer(catalog: &Catalog, request: &Request) -> Result<Vec<u8>, String> {
    let Request { operation, name, from, to, seed, bytes } = request;
    match operation {
        b'L' => {
            let line = |message: &walser_codegen::Message| {
                format!("{} {} {}\n", message.name, message.versions.first, message.versions.last)
            };
            Ok(catalog.messages().map(line).collect::<String>().into_bytes())
        }
        b'T' => catalog.translate(name, *from, *to, bytes).map_err(|error| format!("{error:?}")),
        b'S' => catalog.sample(name, *from, *seed).ok_or_else(|| "unknown message".to_owned()),
        b'D' => {
            let codec = catalog.codec(name).map_err(|error| format!("{error:?}"))?;
            (codec.encode_default)(*from).map_err(|error| format!("{error:?}"))
        }
        other => Err(format!("unknown operation {other}")),
    }
}

fn read_request(input: &mut impl Read) -> io::Result<Option<Request>> {
    let mut operation = [0; 1];
    if input.read(&mut operation)? == 0 {
        return Ok(None);
    }
    let name_len = u16::from_be_bytes(read_array(input)?);
    let name = String::from_utf8_lossy(&read_bytes(input, usize::from(name_len))?).into_owned();
    let from = i16::from_be_bytes(read_array(input)?);
    let to = i16::from_be_bytes(read_array(input)?);
    let seed = u64::from_be_bytes(read_array(input)?);
    let len = u32::from_be_bytes(read_array(input)?);
    let bytes = read_bytes(input, len as usize)?;
    Ok(Some(Request { operation: operation[0], name, from, to, seed, bytes }))
}

fn read_array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_bytes(input: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}
