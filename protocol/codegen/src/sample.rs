//! Random wire bytes of a message, straight from the schema: an encoder that shares nothing with the generated one, so that
//! the two can be held against each other.

use crate::schema::{Default, Field, Message, Type};

/// How values are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Anything the version allows: nulls, empty and long strings, tagged fields present and absent.
    Random,
    /// The least bytes an element can take, and `count` elements in every array nested at most `depth` deep.
    Minimal { count: usize, depth: usize },
}

/// Draws values from a seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Sampler {
    state: u64,
    style: Style,
}

impl Sampler {
    pub fn new(seed: u64, style: Style) -> Self {
        Self { state: seed, style }
    }

    /// The canonical encoding of one message: what an encoder gives back after decoding it.
    pub fn message(&mut self, message: &Message, version: i16) -> Vec<u8> {
        let mut out = Vec::new();
        self.fields(message, &message.fields, version, 0, &mut out);
        out
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn fields(&mut self, message: &Message, fields: &[Field], version: i16, depth: usize, out: &mut Vec<u8>) {
        for field in fields.iter().filter(|field| field.tag.is_none() && field.versions.contains(version)) {
            self.field(message, field, version, depth, out);
        }
        if !message.is_flexible(version) {
            return;
        }
        let mut tagged: Vec<_> =
            fields.iter().filter(|field| field.tag.is_some() && field.versions.contains(version)).collect();
        tagged.sort_by_key(|field| field.tag);
        let mut section = Vec::new();
        let mut count = 0;
        for field in tagged {
            if self.style != Style::Random || self.below(3) == 0 {
                continue;
            }
            let (mut content, mut default) = (Vec::new(), Vec::new());
            self.field(message, field, version, depth, &mut content);
            default_field(message, field, version, &mut default);
            if content != default {
                count += 1;
                uvarint(field.tag.unwrap_or_default(), &mut section);
                uvarint(content.len() as u32, &mut section);
                section.extend_from_slice(&content);
            }
        }
        uvarint(count, out);
        out.extend_from_slice(&section);
    }

    fn field(&mut self, message: &Message, field: &Field, version: i16, depth: usize, out: &mut Vec<u8>) {
        let flexible = message.is_flexible(version);
        let nullable = field.nullable.is_some_and(|versions| versions.contains(version));
        let is_minimal_struct = self.style != Style::Random && matches!(field.ty, Type::Struct(_)) && !field.array;
        if nullable && (is_minimal_struct || self.style == Style::Random && self.below(4) == 0) {
            return null(field, flexible, out);
        }
        if !field.array {
            if nullable && matches!(field.ty, Type::Struct(_)) {
                out.push(1);
            }
            return self.value(message, &field.ty, version, depth, out);
        }
        let count = match self.style {
            Style::Random => self.below(4) as usize,
            Style::Minimal { count, depth: deepest } if depth < deepest => count,
            Style::Minimal { .. } => 0,
        };
        long_len(count, flexible, out);
        for _ in 0..count {
            self.value(message, &field.ty, version, depth + 1, out);
        }
    }

    fn value(&mut self, message: &Message, ty: &Type, version: i16, depth: usize, out: &mut Vec<u8>) {
        let flexible = message.is_flexible(version);
        let bits = match self.below(3) {
            0 => self.below(200),
            1 => u64::MAX,
            _ => self.next(),
        };
        match ty {
            Type::Bool => out.push((bits & 1) as u8),
            Type::Int8 => out.push(bits as u8),
            Type::Int16 | Type::Uint16 => out.extend_from_slice(&(bits as u16).to_be_bytes()),
            Type::Int32 | Type::Uint32 => out.extend_from_slice(&(bits as u32).to_be_bytes()),
            Type::Int64 => out.extend_from_slice(&bits.to_be_bytes()),
            Type::Float64 => out.extend_from_slice(&((bits >> 12) as f64 / 3.0).to_be_bytes()),
            Type::Uuid => {
                out.extend_from_slice(&bits.to_be_bytes());
                out.extend_from_slice(&self.next().to_be_bytes());
            }
            Type::String => {
                let text = self.text();
                if flexible {
                    uvarint(text.len() as u32 + 1, out);
                } else {
                    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
                }
                out.extend_from_slice(text.as_bytes());
            }
            Type::Bytes | Type::Records => {
                let text = self.text();
                long_len(text.len(), flexible, out);
                out.extend_from_slice(text.as_bytes());
            }
            Type::Struct(name) => {
                if let Some(inner) = message.find_struct(name) {
                    self.fields(message, &inner.fields, version, depth, out);
                }
            }
        }
    }

    /// Often short, sometimes empty, sometimes beyond one and two bytes of length; not only ASCII.
    fn text(&mut self) -> String {
        if self.style != Style::Random {
            return String::new();
        }
        let len = match self.below(20) {
            0..6 => 0,
            6..18 => 1 + self.below(12),
            18 => 120 + self.below(20),
            _ => 1000 + self.below(200),
        };
        let alphabet = ['a', 'b', 'Z', '0', '.', '-', '_', ' ', 'ß', '→', '🦀'];
        (0..len).map(|_| alphabet[self.below(alphabet.len() as u64) as usize]).collect()
    }
}

/// The canonical encoding of a field's default.
fn default_field(message: &Message, field: &Field, version: i16, out: &mut Vec<u8>) {
    let flexible = message.is_flexible(version);
    let nullable = field.nullable.is_some_and(|versions| versions.contains(version));
    if nullable && (field.default == Default::Null || field.ty == Type::Records) {
        return null(field, flexible, out);
    }
    if field.array {
        return long_len(0, flexible, out);
    }
    let number = match &field.default {
        Default::Literal(literal) if literal == "true" => 1,
        Default::Literal(literal) => literal.parse::<i64>().unwrap_or_default(),
        Default::Zero | Default::Null => 0,
    };
    match &field.ty {
        Type::Bool | Type::Int8 => out.push(number as u8),
        Type::Int16 | Type::Uint16 => out.extend_from_slice(&(number as i16).to_be_bytes()),
        Type::Int32 | Type::Uint32 => out.extend_from_slice(&(number as i32).to_be_bytes()),
        Type::Int64 => out.extend_from_slice(&number.to_be_bytes()),
        Type::Float64 => out.extend_from_slice(&0_f64.to_be_bytes()),
        Type::Uuid => out.extend_from_slice(&[0; 16]),
        Type::String if flexible => out.push(1),
        Type::String => out.extend_from_slice(&[0, 0]),
        Type::Bytes | Type::Records => long_len(0, flexible, out),
        Type::Struct(name) => {
            if nullable {
                out.push(1);
            }
            let inner = message.find_struct(name).map_or(&[] as &[Field], |inner| &inner.fields);
            for field in inner.iter().filter(|field| field.tag.is_none() && field.versions.contains(version)) {
                default_field(message, field, version, out);
            }
            if flexible {
                out.push(0);
            }
        }
    }
}

fn null(field: &Field, flexible: bool, out: &mut Vec<u8>) {
    if matches!(field.ty, Type::Struct(_)) && !field.array {
        // In a tagged field the mark is a varint: 0 for null, 1 in front of a struct.
        out.push(if field.tag.is_some() { 0 } else { 255 });
    } else if flexible {
        out.push(0);
    } else if field.ty == Type::String && !field.array {
        out.extend_from_slice(&[255; 2]);
    } else {
        out.extend_from_slice(&[255; 4]);
    }
}

fn long_len(len: usize, flexible: bool, out: &mut Vec<u8>) {
    if flexible {
        uvarint(len as u32 + 1, out);
    } else {
        out.extend_from_slice(&(len as u32).to_be_bytes());
    }
}

fn uvarint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
