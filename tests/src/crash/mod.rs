//! Producers at full rate against a broker that dies, and the check that nothing it acknowledged is missing.

mod check;
pub mod load;
pub mod plans;
pub mod produce;
pub mod rounds;

pub use check::{Verdict, verify};
pub use produce::{Acked, Stream, StreamKind};
