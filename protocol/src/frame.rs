//! A frame: a size as int32, then so many bytes of header and body.

use thiserror::Error;

/// Bytes of the size in front.
pub const SIZE_LEN: usize = 4;
/// Least bytes of a request: key, version, correlation id and a null client id.
pub const REQUEST_LEN_MIN: usize = 10;

/// Why a size is refused; the connection is closed for either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame of {size} bytes is too small for a header")]
    TooSmall { size: i32 },
    #[error("a frame of {size} bytes is above the limit of {limit}")]
    TooLarge { size: i32, limit: usize },
}

/// Bytes that follow the size. `limit` is `socket.request.max.bytes`, or what a client is ready to take.
pub fn frame_len(size: [u8; SIZE_LEN], len_min: usize, limit: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(size);
    match usize::try_from(size) {
        Ok(len) if len > limit => Err(FrameError::TooLarge { size, limit }),
        Ok(len) if len >= len_min => Ok(len),
        _ => Err(FrameError::TooSmall { size }),
    }
}

/// Where `part` lies within `frame`, for taking it out of the frame's buffer without a copy. `None` when it does not.
pub fn position_of(frame: &[u8], part: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(frame.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= frame.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        // Rule: negative, too small for a header, or above the limit: refused before anything is reserved.
        let len = |size: i32| frame_len(size.to_be_bytes(), REQUEST_LEN_MIN, 100);
        assert_eq!(len(100), Ok(100));
        assert_eq!(len(101), Err(FrameError::TooLarge { size: 101, limit: 100 }));
        assert_eq!(len(i32::MAX), Err(FrameError::TooLarge { size: i32::MAX, limit: 100 }));
        assert_eq!(len(-1), Err(FrameError::TooSmall { size: -1 }));
        assert_eq!(len(9), Err(FrameError::TooSmall { size: 9 }));
    }

    #[test]
    fn parts_are_found_in_their_frame() {
        // Rule: a slice of the frame gives its range, a slice of something else gives nothing or stays within bounds.
        let frame = [1, 2, 3, 4];
        assert_eq!(position_of(&frame, &frame[1..3]), Some(1..3));
        assert_eq!(position_of(&frame[..2], &frame[1..4]), None);
    }
}
