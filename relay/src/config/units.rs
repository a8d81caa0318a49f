// SPDX-License-Identifier: GPL-2.0
//! Parsers of times and sizes.

use std::time::Duration;

/// Parses a time such as `250ms`, `5s`, `2m`, `1h` or `1d`. A number alone means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            return Err(format!(
                "'{text}' is no time (such as 250ms, 5s, 2m, 1h, 1d)"
            ));
        }
    };
    let value = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(milliseconds))
        // A hundred years at most, so that no sum of times overflows.
        .filter(|n| *n <= 3_155_760_000_000)
        .ok_or_else(|| format!("'{text}' is no time (such as 250ms, 5s, 2m, 1h, 1d)"))?;
    Ok(Duration::from_millis(value))
}

/// Parses a number of bytes such as `500`, `64K`, `10M` or `2G`. The units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("'{text}' is no size (such as 500, 64K, 10M, 2G)")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(|| format!("'{text}' is no size (such as 500, 64K, 10M, 2G)"))
}

fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("7"), Ok(7));
        for text in [
            "",
            "s",
            "5 s",
            "-1s",
            "1.5s",
            "5y",
            "99999999999999999999",
            "9999999999d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "K", "1KB", "-1", "99999999999T", "16777216T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
