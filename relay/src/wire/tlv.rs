// SPDX-License-Identifier: GPL-2.0
//! The TLVs behind the addresses of a PROXY header of version 2: type, length and value.

use std::ops::Range;
use std::str::FromStr;

const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const UNIQUE_ID: u8 = 0x05;

/// Largest value of [`UNIQUE_ID`], by the specification.
pub const LONGEST_ID: usize = 128;

/// The values that the relay knows. All others are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tlvs {
    /// The host name that the client asked for.
    pub authority: Option<Vec<u8>>,
    pub alpn: Option<Vec<u8>>,
    pub unique_id: Option<Vec<u8>>,
}

/// What a header for a target has besides the addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    pub authority: bool,
    pub alpn: bool,
    pub unique_id: bool,
    /// A checksum of the header.
    pub crc32c: bool,
}

/// One of the [`Kinds`], as it is written in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Authority,
    Alpn,
    UniqueId,
    Crc32c,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "authority" => Kind::Authority,
            "alpn" => Kind::Alpn,
            "unique-id" => Kind::UniqueId,
            "crc32c" => Kind::Crc32c,
            _ => {
                return Err(format!(
                    "'{text}' is no TLV (authority, alpn, unique-id, crc32c)"
                ));
            }
        })
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Kinds {
        let mut all = Kinds::default();
        for kind in kinds {
            match kind {
                Kind::Authority => all.authority = true,
                Kind::Alpn => all.alpn = true,
                Kind::UniqueId => all.unique_id = true,
                Kind::Crc32c => all.crc32c = true,
            }
        }
        all
    }
}

/// Why bytes are refused as TLVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// They are no TLVs.
    Form(&'static str),
    /// They are TLVs, and tell by their checksum that the header is not the one that was sent.
    Sum(&'static str),
}

/// Parses the TLVs in `header[at..]`. `header` is the whole header, which a checksum covers.
pub fn parse(header: &[u8], mut at: usize) -> Result<Tlvs, Wrong> {
    const CUT: Wrong = Wrong::Form("a PROXY header whose TLVs are cut off");
    let mut tlvs = Tlvs::default();
    let mut sums = 0;
    let mut place = 0..0;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(CUT);
        };
        let begin = at + 3;
        at = begin + usize::from(u16::from_be_bytes([high, low]));
        let value = header.get(begin..at).ok_or(CUT)?;
        match kind {
            AUTHORITY => tlvs.authority = Some(value.to_vec()),
            ALPN => tlvs.alpn = Some(value.to_vec()),
            UNIQUE_ID if value.len() > LONGEST_ID => {
                return Err(Wrong::Form("a PROXY header whose unique id is too long"));
            }
            UNIQUE_ID => tlvs.unique_id = Some(value.to_vec()),
            CRC32C => {
                sums += 1;
                place = begin..at;
            }
            _ => {}
        }
    }
    match sums {
        0 => Ok(tlvs),
        1 if is_sum(header, place) => Ok(tlvs),
        1 => Err(Wrong::Sum("a PROXY header whose checksum is wrong")),
        // Each covers the whole header. To compare them all is work by the square of its size.
        _ => Err(Wrong::Sum("a PROXY header with two checksums")),
    }
}

/// True if the bytes at `place` are the checksum of the header with zeros in its own place.
fn is_sum(header: &[u8], place: Range<usize>) -> bool {
    let sum = crc32c(&[&header[..place.start], &[0; 4], &header[place.end..]]);
    header[place] == sum.to_be_bytes()
}

/// Appends those of `tlvs` that `kinds` has. [`seal`] fills in the checksum later.
pub fn write(out: &mut Vec<u8>, tlvs: &Tlvs, kinds: Kinds) {
    let values = [
        (kinds.alpn, ALPN, &tlvs.alpn),
        (kinds.authority, AUTHORITY, &tlvs.authority),
        (kinds.unique_id, UNIQUE_ID, &tlvs.unique_id),
    ];
    for (wanted, kind, value) in values {
        if let (true, Some(value)) = (wanted, value) {
            push(out, kind, value);
        }
    }
    if kinds.crc32c {
        push(out, CRC32C, &[0; 4]);
    }
}

fn push(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    // A longer value comes from no header, and from no ClientHello.
    if let Ok(length) = u16::try_from(value.len()) {
        out.push(kind);
        out.extend(length.to_be_bytes());
        out.extend(value);
    }
}

/// Writes the checksum of a header whose last TLV, by [`write`], is that of the checksum.
pub fn seal(header: &mut [u8]) {
    let sum = crc32c(&[header]);
    if let Some(place) = header.last_chunk_mut::<4>() {
        *place = sum.to_be_bytes();
    }
}

/// CRC32C (Castagnoli) of the parts, one after the other.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All kinds.
    pub const ALL: Kinds = Kinds {
        authority: true,
        alpn: true,
        unique_id: true,
        crc32c: true,
    };

    pub fn some() -> impl Strategy<Value = Tlvs> {
        let value = |most| proptest::option::of(proptest::collection::vec(any::<u8>(), 0..most));
        (value(300), value(300), value(LONGEST_ID)).prop_map(|(authority, alpn, unique_id)| Tlvs {
            authority,
            alpn,
            unique_id,
        })
    }

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc32c(&[b"12345", b"6789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
    }

    #[test]
    fn tlvs_that_are_cut_off_are_refused() {
        for bytes in [
            &b"\x02"[..],
            b"\x02\0",
            b"\x02\0\x01",
            b"\xe0\xff\xff",
            b"\x02\0\0\x04",
        ] {
            assert!(parse(bytes, 0).is_err(), "{bytes:?}");
        }
        let id = [&[UNIQUE_ID, 0, 129][..], &[7; 129]].concat();
        assert!(parse(&id, 0).is_err());
    }

    #[test]
    fn a_second_checksum_is_refused() {
        let mut header = vec![7; 28];
        write(&mut header, &Tlvs::default(), ALL);
        // The first checksum covers the second TLV.
        push(&mut header, CRC32C, &[0; 4]);
        let sum = crc32c(&[&header]);
        header[31..35].copy_from_slice(&sum.to_be_bytes());
        let expected = Wrong::Sum("a PROXY header with two checksums");
        assert_eq!(parse(&header, 28), Err(expected));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tlvs in some(), start: Vec<u8>) {
            let mut header = start.clone();
            write(&mut header, &tlvs, ALL);
            seal(&mut header);
            prop_assert_eq!(parse(&header, start.len()), Ok(tlvs));
        }

        #[test]
        fn a_changed_bit_is_found(tlvs in some(), at: usize, bit in 0u8..8) {
            // Only the checksum finds a change of the bytes before the TLVs.
            let mut header = vec![7; 28];
            write(&mut header, &tlvs, ALL);
            seal(&mut header);
            header[at % 28] ^= 1 << bit;
            prop_assert!(parse(&header, 28).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..9) {
            let _ = parse(&bytes, at);
        }
    }
}
