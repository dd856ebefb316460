//! Facts about a message's structs that the emitted code depends on: who borrows, and how few bytes each may take.

use crate::schema::{Field, Message, Type};

/// Whether a struct of these fields holds a slice of the frame.
pub(crate) fn borrows(message: &Message, fields: &[Field]) -> bool {
    fields.iter().filter(|field| is_present(message, field)).any(|field| match &field.ty {
        Type::String | Type::Bytes | Type::Records => true,
        Type::Struct(name) => message.find_struct(name).is_some_and(|inner| borrows(message, &inner.fields)),
        Type::Bool
        | Type::Int8
        | Type::Int16
        | Type::Uint16
        | Type::Int32
        | Type::Uint32
        | Type::Int64
        | Type::Float64
        | Type::Uuid => false,
    })
}

/// Whether the field exists in any version of the message.
pub(crate) fn is_present(message: &Message, field: &Field) -> bool {
    field.versions.overlaps(message.versions)
}

/// Least bytes on the wire of one value (of one element, for an array) of the field's type.
pub(crate) fn value_len_min(message: &Message, ty: &Type, version: i16) -> usize {
    let flexible = message.is_flexible(version);
    match ty {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 | Type::Uint16 => 2,
        Type::Int32 | Type::Uint32 => 4,
        Type::Int64 | Type::Float64 => 8,
        Type::Uuid => 16,
        Type::String | Type::Bytes | Type::Records if flexible => 1,
        Type::String => 2,
        Type::Bytes | Type::Records => 4,
        Type::Struct(name) => {
            message.find_struct(name).map_or(0, |inner| struct_len_min(message, &inner.fields, version))
        }
    }
}

/// Least bytes on the wire of a struct with these fields.
pub(crate) fn struct_len_min(message: &Message, fields: &[Field], version: i16) -> usize {
    let tags = usize::from(message.is_flexible(version));
    let body: usize = fields.iter().map(|field| field_len_min(message, field, version)).sum();
    body + tags
}

fn field_len_min(message: &Message, field: &Field, version: i16) -> usize {
    if field.tag.is_some() || !field.versions.contains(version) {
        return 0;
    }
    if field.array {
        return if message.is_flexible(version) { 1 } else { 4 };
    }
    let nullable = field.nullable.is_some_and(|versions| versions.contains(version));
    if nullable && matches!(field.ty, Type::Struct(_)) { 1 } else { value_len_min(message, &field.ty, version) }
}

/// `value_len_min` over the message's versions as runs of (last version of the run, length).
pub(crate) fn element_len_runs(message: &Message, field: &Field) -> Vec<(i16, usize)> {
    let mut runs: Vec<(i16, usize)> = Vec::new();
    for version in message.versions.first..=message.versions.last {
        if !field.versions.contains(version) {
            continue;
        }
        let len = value_len_min(message, &field.ty, version).max(1);
        match runs.last_mut() {
            Some(run) if run.1 == len => run.0 = version,
            _ => runs.push((version, len)),
        }
    }
    runs
}
