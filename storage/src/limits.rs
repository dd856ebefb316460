//! Bounds of the storage layer, each with its unit and reason. Settings an operator may change are in the broker's
//! configuration; what stands here are the constants behind them.

use std::time::Duration;

/// Disk operations one shard has in flight. The ring queues without bound what does not fit, so the bound is ours; a device
/// is saturated by 8 to 32.
pub const DISK_OPERATIONS_IN_FLIGHT_MAX: usize = 128;

/// Bytes of one read request. A longer read is made in steps, so that one cold fetch does not take a buffer of its whole
/// length.
pub const DISK_READ_STEP_BYTES: usize = 1 << 20;

/// How long a shard waits for completions before it looks for itself: a wake-up that the executor missed costs this much
/// and not for ever. Short ones cost a sleeping shard more than they are worth while the disk is slow.
pub const COMPLETION_GUARD_WAIT: Duration = Duration::from_millis(4);

/// A large file is removed in pieces of this size. A file system mounted with `discard` tells the disk what has become free,
/// and flushes wait meanwhile: a fifth of a second for 200 MiB at once.
pub const REMOVAL_STEP_BYTES: u64 = 8 << 20;

/// Between two pieces, so that commits come in between.
pub const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// Payload of one record of a write-ahead log. Larger things are written beside it and referred to; a length beyond it on
/// disk is garbage.
pub const WAL_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Bytes of one group commit: one buffer and one write. What arrives beyond it goes into the next.
pub const WAL_COMMIT_BYTES_MAX: usize = 8 << 20;

/// Bytes accepted and not yet written. Beyond it an append is refused.
pub const WAL_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of zeros written at a time when a file is made.
pub const WAL_ZERO_STEP_BYTES: usize = 256 << 10;

/// Bytes read at a time when a file is replayed.
pub const WAL_READ_STEP_BYTES: usize = 1 << 20;

/// Bytes copied and checksummed before giving way: about 100 us from cold memory.
pub const WAL_ENCODE_STEP_BYTES: usize = 256 << 10;

const _: () = assert!(WAL_PAYLOAD_BYTES_MAX < WAL_QUEUE_BYTES_MAX);
