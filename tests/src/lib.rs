//! What needs more than one module, or a whole broker, to be tested.

pub mod codec;
pub mod lossy_fs;
