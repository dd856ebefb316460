//! What the disk itself takes: blocks written one after the other with O_DIRECT, the next one when the last one is there.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};

use crate::produce::noise;

/// Of memory, positions and lengths.
const ALIGN_BYTES: usize = 4096;

/// What was there before the measured writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extents {
    /// Reserved, as a segment's are: the first flush behind a write has metadata to carry.
    Reserved,
    /// Written once before.
    Written,
}

#[derive(Clone, Debug)]
pub struct PlainWrites {
    /// On the disk that is measured.
    pub dir: PathBuf,
    /// A multiple of 4096.
    pub block_bytes: usize,
    /// Of the file. When it is full the run is over.
    pub file_bytes: u64,
    pub extents: Extents,
    /// An `fdatasync` behind every block.
    pub flushes: bool,
    pub measured: Duration,
}

/// Bytes a second.
pub fn run(writes: &PlainWrites) -> io::Result<f64> {
    let path = writes.dir.join("plain-writes");
    let outcome = measure(writes, &path);
    remove_file(&path)?;
    outcome
}

fn measure(writes: &PlainWrites, path: &Path) -> io::Result<f64> {
    let file = OpenOptions::new().create_new(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let block_bytes = writes.block_bytes as u64;
    let file_bytes = writes.file_bytes / block_bytes * block_bytes;
    let len = libc::off_t::try_from(file_bytes).map_err(io::Error::other)?;
    fallocate(&file, FallocateFlags::empty(), 0, len)?;
    let memory = noise(writes.block_bytes + ALIGN_BYTES);
    let start = memory.as_ptr().align_offset(ALIGN_BYTES);
    let block = &memory[start..start + writes.block_bytes];
    if writes.extents == Extents::Written {
        write_for(&file, block, file_bytes, None)?;
    }
    file.sync_all()?;
    let begin = Instant::now();
    let bytes = write_for(&file, block, file_bytes, Some((begin + writes.measured, writes.flushes)))?;
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    Ok(bytes as f64 / begin.elapsed().as_secs_f64())
}

/// Once over the file, or until then; the bytes.
fn write_for(file: &File, block: &[u8], file_bytes: u64, until: Option<(Instant, bool)>) -> io::Result<u64> {
    let mut position = 0;
    while position < file_bytes {
        file.write_all_at(block, position)?;
        position += block.len() as u64;
        let Some((until, flushes)) = until else { continue };
        if flushes {
            file.sync_data()?;
        }
        if Instant::now() >= until {
            break;
        }
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_and_the_file_is_gone() {
        // Rule: each kind of run ends with a rate, and leaves nothing behind.
        let dir = std::env::temp_dir().join(format!("walser-bench-plain-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a new directory");
        for (extents, flushes) in [(Extents::Reserved, false), (Extents::Reserved, true), (Extents::Written, true)] {
            let writes = PlainWrites {
                dir: dir.clone(),
                block_bytes: 64 << 10,
                file_bytes: 256 << 10,
                extents,
                flushes,
                measured: Duration::from_secs(60),
            };
            let rate = run(&writes).expect("a disk that takes direct writes");
            assert!(rate > 0.0, "{extents:?}, {flushes}");
        }
        std::fs::remove_dir(&dir).expect("it is empty");
    }
}
