//! A segment's file as it will be when the journal is replayed.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::disk::{BLOCK_BYTES, File};
use crate::journal::replay::Content;

/// Reads a file, and what a journal has for it where it has something. Takes no writes.
#[derive(Clone)]
pub(super) struct Overlaid<F> {
    path: PathBuf,
    /// `None`: only the journal has it.
    file: Option<F>,
    file_bytes: u64,
    content: Rc<Content>,
}

impl<F: File> Overlaid<F> {
    pub fn new(path: PathBuf, file: Option<F>, file_bytes: u64, content: Content) -> Self {
        Self { path, file, file_bytes, content: Rc::new(content) }
    }

    pub fn end(&self) -> u64 {
        self.content.end().max(self.file_bytes)
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl<F: File> File for Overlaid<F> {
    type Buffer = Vec<u8>;

    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn allocate(&self, len_bytes: usize) -> Vec<u8> {
        vec![0; len_bytes.next_multiple_of(BLOCK_BYTES)]
    }

    async fn read_into(&self, memory: BytesMut, position: u64, len_bytes: usize) -> io::Result<Bytes> {
        let len = usize::try_from(self.end().saturating_sub(position)).map_or(len_bytes, |left| left.min(len_bytes));
        let found = match &self.file {
            Some(file) if position < self.file_bytes => file.read_into(memory, position, len).await?,
            Some(_) | None => Bytes::new(),
        };
        if found.len() == len && !self.content.touches(position, len) {
            return Ok(found);
        }
        let mut bytes = BytesMut::from(&found[..]);
        bytes.resize(len, 0);
        self.content.lay_over(position, &mut bytes);
        Ok(bytes.freeze())
    }

    async fn write_at(&self, _: Vec<u8>, _: u64) -> io::Result<()> {
        read_only()
    }

    async fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    async fn truncate(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    async fn preallocate(&self, _: u64, _: bool) -> io::Result<()> {
        read_only()
    }

    async fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.end())
    }
}
