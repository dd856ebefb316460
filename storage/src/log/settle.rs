//! What a start believes is written again first.
//!
//! When a flush fails, the system may go on to give out bytes that will never be on the disk, and say of the next flush that
//! all is well. A process that saw it takes its log offline; one that is killed then cannot tell the next. So a start writes
//! whatever it has scanned once more, as it was checked, and then flushes it. That is what lies behind the last recovery
//! point or [note](super::known_end): those say that a flush has succeeded.

use bytes::Bytes;

use crate::disk::{BLOCK_BYTES, Disk, File};
use crate::error::DiskError;
use crate::segment::Segment;
use crate::segment::writer::{BlockWriter, LastBlock};

/// Written at once.
const WRITE_BYTES: usize = 256 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Writes batches of one segment to where they were read.
#[derive(Default)]
pub(super) struct Settler {
    writer: BlockWriter,
    pending: Vec<Bytes>,
    pending_bytes: usize,
}

impl Settler {
    /// Takes the next batch, which the segment counts as appended by now.
    pub async fn take<D: Disk>(
        &mut self,
        disk: &D,
        segment: &Segment<D::File>,
        file: &D::File,
        batch: Bytes,
    ) -> Result<(), DiskError> {
        self.pending_bytes += batch.len();
        self.pending.push(batch);
        if self.pending_bytes >= WRITE_BYTES { self.write_blocks(disk, segment, file).await } else { Ok(()) }
    }

    /// Writes what is left, and leaves what stands behind it as it was; the file has `len_bytes`.
    pub async fn finish<D: Disk>(
        mut self,
        disk: &D,
        segment: &Segment<D::File>,
        file: &D::File,
        len_bytes: u64,
    ) -> Result<(), DiskError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.write_blocks(disk, segment, file).await?;
        let (position, bytes) = self.writer.loose_end(segment, &self.pending);
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = |operation| move |e| DiskError::new(operation, segment.path(), e);
        let start = position / BLOCK * BLOCK;
        let found = file.read_at(start, BLOCK_BYTES).await.map_err(failed("read"))?;
        let at = usize::try_from(position - start).expect("within a block");
        loop {
            let mut buffer = file.allocate(BLOCK_BYTES);
            buffer[..found.len()].copy_from_slice(&found);
            buffer[found.len()..].fill(0);
            buffer[at..at + bytes.len()].copy_from_slice(&bytes);
            match file.write_at(buffer, start).await.map_err(failed("write")) {
                Err(error) if error.is_full() && disk.make_way().await => {}
                written => break written?,
            }
        }
        // Not longer than it was: a finished segment has no zeros behind its data.
        if start + BLOCK > len_bytes { file.truncate(len_bytes).await.map_err(failed("truncate")) } else { Ok(()) }
    }

    /// Writes the blocks that are full.
    async fn write_blocks<D: Disk>(
        &mut self,
        disk: &D,
        segment: &Segment<D::File>,
        file: &D::File,
    ) -> Result<(), DiskError> {
        let written = loop {
            match self.writer.write(segment, file, &self.pending, LastBlock::HeldBack).await {
                Err(error) if error.is_full() && disk.make_way().await => {}
                written => break written?,
            }
        };
        for batch in self.pending.drain(..written.unwrap_or(0)) {
            self.pending_bytes -= batch.len();
        }
        Ok(())
    }
}
