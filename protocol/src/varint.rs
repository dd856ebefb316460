//! Variable-length integers: seven bits a byte, low bits first. Unsigned ones carry compact lengths and tags, signed ones
//! (zigzag: 0, -1, 1, -2, …) the fields of records.

/// Bytes of the longest `u32` and `u64`.
pub const U32_LEN_MAX: usize = 5;
pub const U64_LEN_MAX: usize = 10;

/// Reads a `u32` at the start of `bytes`: the value and how many bytes it took. `None` when it is cut off or too long.
#[inline]
pub fn read_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    // One byte is the rule by far: tags, short strings, small counts.
    if let Some(&first) = bytes.first()
        && first < 0x80
    {
        return Some((u32::from(first), 1));
    }
    read_u32_slow(bytes)
}

fn read_u32_slow(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0_u32;
    for (index, &byte) in bytes.iter().take(U32_LEN_MAX).enumerate() {
        // The fifth byte has four bits to give; Kafka drops what is above them.
        value |= u32::from(byte & 0x7f).wrapping_shl(7 * index as u32);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Reads a `u64`; as [`read_u32`].
pub fn read_u64(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(U64_LEN_MAX).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * index as u32);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Reads a zigzag `i32`; as [`read_u32`].
#[inline]
pub fn read_i32(bytes: &[u8]) -> Option<(i32, usize)> {
    read_u32(bytes).map(|(raw, len)| (unzigzag_i32(raw), len))
}

/// Reads a zigzag `i64`; as [`read_u32`].
#[inline]
pub fn read_i64(bytes: &[u8]) -> Option<(i64, usize)> {
    read_u64(bytes).map(|(raw, len)| (unzigzag_i64(raw), len))
}

/// The encoding of `value` and its length; the first `len` bytes of the array count.
pub fn write_u64(mut value: u64) -> ([u8; U64_LEN_MAX], usize) {
    let mut bytes = [0; U64_LEN_MAX];
    let mut len = 0;
    for slot in &mut bytes {
        len += 1;
        if value < 0x80 {
            *slot = value as u8;
            break;
        }
        *slot = value as u8 | 0x80;
        value >>= 7;
    }
    (bytes, len)
}

/// Bytes that `value` takes as an unsigned varint.
#[inline]
pub const fn u32_len(value: u32) -> usize {
    u64_len(value as u64)
}

#[inline]
pub const fn u64_len(value: u64) -> usize {
    // Bits in use, at least one, by seven and rounded up.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
pub const fn i32_len(value: i32) -> usize {
    u32_len(zigzag_i32(value))
}

#[inline]
pub const fn i64_len(value: i64) -> usize {
    u64_len(zigzag_i64(value))
}

#[inline]
pub const fn zigzag_i32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline]
pub const fn zigzag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub const fn unzigzag_i32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline]
pub const fn unzigzag_i64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_round_trips() {
        // Rule: read(write(x)) = x, and the length functions say what is written.
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let (bytes, len) = write_u64(value);
                assert_eq!(len, u64_len(value), "{value}");
                assert_eq!(read_u64(&bytes[..len]), Some((value, len)));
                if let Ok(small) = u32::try_from(value) {
                    assert_eq!(read_u32(&bytes[..len]), Some((small, len)));
                }
                assert_eq!(unzigzag_i64(zigzag_i64(value as i64)), value as i64);
                assert_eq!(unzigzag_i32(zigzag_i32(value as i32)), value as i32);
            }
        }
    }

    #[test]
    fn cut_off_and_endless_numbers_are_refused() {
        // Rule: a varint ends within its bytes and within its longest form.
        assert_eq!(read_u32(&[]), None);
        assert_eq!(read_u32(&[0x80]), None);
        assert_eq!(read_u32(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some((u32::MAX, 5)));
        assert_eq!(read_u32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), None);
        assert_eq!(read_u64(&[0x80; 11]), None);
    }
}
