// SPDX-License-Identifier: GPL-2.0
//! Sizes in memory: `65536`, `64K`, `64KiB` or `1M`.

use crate::uapi::capture::{BUFFER_MAX, BUFFER_MIN};
use crate::uapi::{RING_SIZE_MAX, RING_SIZE_MIN};

const MEMORY_MAX: u64 = 1 << 40;

/// Parses the size of a ring.
pub fn parse(text: &str) -> Result<u32, String> {
    power_of_two(text, RING_SIZE_MIN, RING_SIZE_MAX)
        .ok_or_else(|| "a ring is a power of two from 4K to 1M, as bytes or with K or M".into())
}

/// Parses the size of the buffer of a capture.
pub fn parse_buffer(text: &str) -> Result<u32, String> {
    power_of_two(text, BUFFER_MIN, BUFFER_MAX).ok_or_else(|| {
        "a buffer is a power of two from 512K to 1G, as bytes or with K, M or G".into()
    })
}

/// Parses the most bytes that all rings of a policy may hold: at least one ring a direction.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    bytes(text)
        .filter(|size| (u64::from(2 * RING_SIZE_MIN)..=MEMORY_MAX).contains(size))
        .ok_or_else(|| "a memory cap is 8K to 1024G, as bytes or with K, M or G".into())
}

/// Parses the most bytes that all rings may hold; "off" is no limit, 0.
pub fn parse_memory_or_off(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        _ => parse_memory(text).map_err(|e| format!("{e}; or off")),
    }
}

pub fn format_or_off(size: u64) -> String {
    match size {
        0 => "off".into(),
        _ => format(size),
    }
}

fn power_of_two(text: &str, min: u32, max: u32) -> Option<u32> {
    let size = u32::try_from(bytes(text)?).ok()?;
    (size.is_power_of_two() && (min..=max).contains(&size)).then_some(size)
}

/// A number of bytes, with K, M or G or without. KiB is K.
fn bytes(text: &str) -> Option<u64> {
    let text = text
        .strip_suffix("iB")
        .filter(|t| t.ends_with(['K', 'M', 'G']))
        .unwrap_or(text);
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse::<u32>().ok()?.into();
    Some(number << shift)
}

/// With the largest unit that divides it.
pub fn format(size: u64) -> String {
    if size > 0 && size % (1 << 30) == 0 {
        format!("{}G", size >> 30)
    } else if size > 0 && size % (1 << 20) == 0 {
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
    fn memory_caps() {
        assert_eq!(parse_memory("8K"), Ok(8192));
        assert_eq!(parse_memory("100000"), Ok(100_000));
        assert_eq!(parse_memory("1024G"), Ok(1 << 40));
        for text in ["0", "8191", "1025G", "4294967296G", "G", "1T", ""] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn buffers() {
        for (text, size) in [("512K", 1 << 19), ("8M", 1 << 23), ("1G", 1 << 30)] {
            assert_eq!(parse_buffer(text), Ok(size), "{text}");
        }
        for text in ["256K", "3M", "2G", "4294967295G", "", "G"] {
            assert!(parse_buffer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats() {
        assert_eq!(format(0), "0");
        assert_eq!(format(4096), "4K");
        assert_eq!(format(1 << 20), "1M");
        assert_eq!(format(3 << 30), "3G");
        assert_eq!(format(1000), "1000");
    }
}
