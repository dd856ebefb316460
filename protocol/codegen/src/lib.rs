//! walser-codegen
