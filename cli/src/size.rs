// SPDX-License-Identifier: GPL-2.0
//! The size of a ring: `65536`, `64K` or `1M`.

use crate::uapi::{RING_SIZE_MAX, RING_SIZE_MIN};

pub fn parse(text: &str) -> Result<u32, String> {
    let error = || "a ring is a power of two from 4K to 1M, as bytes or with K or M".to_string();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error());
    }
    let number: u64 = digits.parse::<u32>().map_err(|_| error())?.into();
    match u32::try_from(number << shift) {
        Ok(size) if size.is_power_of_two() && (RING_SIZE_MIN..=RING_SIZE_MAX).contains(&size) => {
            Ok(size)
        }
        _ => Err(error()),
    }
}

/// With the largest unit that divides it.
pub fn format(size: u64) -> String {
    if size > 0 && size % (1 << 20) == 0 {
        format!("{}M", size >> 20)
    } else if size > 0 && size % (1 << 10) == 0 {
        format!("{}K", size >> 10)
    } else {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_powers_of_two_in_range() {
        for (text, size) in [
            ("4096", 4096),
            ("4K", 4096),
            ("64K", 65536),
            ("64k", 65536),
            ("65536", 65536),
            ("1M", 1 << 20),
            ("1m", 1 << 20),
            ("1024K", 1 << 20),
        ] {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "0",
            "K",
            "2K",
            "2048",
            "5000",
            "2M",
            "1G",
            "-4K",
            "+4K",
            "4 K",
            "4KB",
            "0x1000",
            "99999999999",
            "4294967295M",
            "é",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats() {
        assert_eq!(format(0), "0");
        assert_eq!(format(4096), "4K");
        assert_eq!(format(1 << 20), "1M");
        assert_eq!(format(1000), "1000");
    }
}
