//! What needs more than one module, or a whole broker, to be tested.

pub mod codec;
pub mod compaction;
pub mod crash;
pub mod differential;
pub mod disks;
pub mod golden;
pub mod hostile;
pub mod log_dirs;
pub mod lossy_fs;
pub mod many;
pub mod order;
pub mod process;
pub mod raw_client;
pub mod stalls;
pub mod starts;
pub mod topic;
