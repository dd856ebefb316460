//! Sparse indexes beside each segment: offset to file position, timestamp to offset. Pure; files are the segment's.

pub mod offset;
pub mod time;

/// Why an index file cannot be used: it is rebuilt from the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("{bytes} bytes are not a whole number of entries")]
    BadLength { bytes: usize },
    #[error("entry {at} does not follow its predecessor")]
    NotRising { at: usize },
    #[error("entry {at} points behind the segment's end")]
    BehindEnd { at: usize },
}
