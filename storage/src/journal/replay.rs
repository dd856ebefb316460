//! What a start does with the journals of the run before it.
