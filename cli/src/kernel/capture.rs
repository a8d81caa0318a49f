// SPDX-License-Identifier: GPL-2.0
//! `/dev/socksplice-capture`. `module/uapi/capture.h` describes its operations and records.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl, opcode};

use crate::error::{Error, Result};
use crate::uapi::capture::FILTERS;

const PATH: &str = "/dev/socksplice-capture";

const GROUP: u8 = b'$';
const START: Opcode = opcode::write::<Options>(GROUP, 1);
const STOP: Opcode = opcode::none(GROUP, 2);
const STATS: Opcode = opcode::read::<Stats>(GROUP, 3);

/// `struct socksplice_capture_opts`.
#[repr(C)]
pub struct Options {
    pub snaplen: u32,
    pub buffer: u32,
    pub netns: u32,
    n_ports: u32,
    n_cgroups: u32,
    n_pairs: u32,
    reserved: [u32; 2],
    ports: [[u16; 2]; FILTERS],
    cgroups: [u64; FILTERS],
    pairs: [u32; FILTERS],
}

impl Options {
    pub fn new(snaplen: u32, buffer: u32) -> Self {
        Options {
            snaplen,
            buffer,
            netns: 0,
            n_ports: 0,
            n_cgroups: 0,
            n_pairs: 0,
            reserved: [0; 2],
            ports: [[0; 2]; FILTERS],
            cgroups: [0; FILTERS],
            pairs: [0; FILTERS],
        }
    }

    pub fn ports(&mut self, ports: &[[u16; 2]]) -> Result<()> {
        self.n_ports = fill(&mut self.ports, ports, "port ranges")?;
        Ok(())
    }

    pub fn cgroups(&mut self, ids: &[u64]) -> Result<()> {
        self.n_cgroups = fill(&mut self.cgroups, ids, "cgroups")?;
        Ok(())
    }

    pub fn pairs(&mut self, ids: &[u32]) -> Result<()> {
        self.n_pairs = fill(&mut self.pairs, ids, "pairs")?;
        Ok(())
    }
}

fn fill<T: Copy>(to: &mut [T; FILTERS], from: &[T], what: &str) -> Result<u32> {
    let Some(to) = to.get_mut(..from.len()) else {
        return Err(
            Error::usage(format!("more than {FILTERS} {what} are given"))
                .remedy("capture more, and filter what was captured"),
        );
    };
    to.copy_from_slice(from);
    Ok(from.len() as u32)
}

/// `struct socksplice_capture_stats`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
    pub dropped: u64,
    pub dropped_bytes: u64,
}

/// A capture, until it is closed.
pub struct Device(File);

impl Device {
    pub fn start(options: Options) -> Result<Self> {
        let file = File::open(PATH).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                Error::new("CAP_NET_ADMIN and CAP_NET_RAW in the initial user namespace are needed")
                    .remedy("run this on the host, not in a container")
            }
            io::ErrorKind::NotFound => Error::new(format!("there is no {PATH}"))
                .remedy("it is in devtmpfs, which has to be mounted on /dev"),
            _ => Error::new(format!("cannot open {PATH}: {e}")),
        })?;
        // SAFETY: this is what the operation takes; the kernel reads it and keeps nothing.
        let started = unsafe { ioctl(&file, Setter::<START, Options>::new(options)) };
        match started {
            Ok(()) => Ok(Device(file)),
            Err(Errno::BUSY) => Err(Error::new("there is a capture already")
                .remedy(format!("'fuser -v {PATH}' names its process"))),
            Err(Errno::NOMEM) => {
                Err(Error::new("there is no memory for the buffer").remedy("ask for less"))
            }
            Err(e) => Err(refused(e)),
        }
    }

    /// Ends the capture. The records made so far can still be read.
    pub fn stop(&self) -> Result<()> {
        // SAFETY: the operation has no argument.
        unsafe { ioctl(&self.0, NoArg::<STOP>::new()) }.map_err(refused)
    }

    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: this is what the operation writes, and all of it.
        unsafe { ioctl(&self.0, Getter::<STATS, Stats>::new()) }.map_err(refused)
    }

    /// The next records; none of them if none came in a while. After `stop`, `None` once all
    /// have been read.
    pub fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Result<Option<Records<'a>>> {
        match self.0.read(buffer) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(Records(&buffer[..n]))),
            Err(e)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&e.kind()) =>
            {
                Ok(Some(Records(&[])))
            }
            Err(e) => Err(Error::new(format!("cannot read what was captured: {e}"))),
        }
    }
}

fn refused(error: Errno) -> Error {
    Error::new(format!("the module answered: {error}"))
}

/// `struct socksplice_capture_end`.
#[derive(Debug, PartialEq)]
pub struct End {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub netns: u32,
}

/// `struct socksplice_capture_record`.
pub struct Record<'a> {
    pub time: Duration,
    pub pair: u32,
    /// 0, or of `uapi::EVENTS`, from 1 on; then `data` is its reason.
    pub event: usize,
    pub from: usize,
    pub size: u32,
    pub seq: u32,
    pub ring: u32,
    pub ack: u32,
    pub ends: [End; 2],
    pub data: &'a [u8],
}

const RECORD: usize = 128;

/// Whole records, one after the other.
pub struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let header = self.0.get(..RECORD)?;
        let length = u32_at(header, 0) as usize;
        let (record, rest) = self.0.split_at_checked(length.max(RECORD))?;
        self.0 = rest;
        let kept = u32_at(header, 4) as usize;
        Some(Record {
            time: Duration::from_nanos(u64::from_ne_bytes(array(header, 8))),
            pair: u32_at(header, 24),
            event: header[28].into(),
            from: usize::from(header[29] != 0),
            size: u32_at(header, 32),
            seq: u32_at(header, 36),
            ring: u32_at(header, 40),
            ack: u32_at(header, 44),
            ends: [end_at(header, 48), end_at(header, 88)],
            data: record.get(RECORD..RECORD + kept)?,
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a slice of that length")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

fn end_at(bytes: &[u8], at: usize) -> End {
    let addresses = [at, at + 16].map(|at| Ipv6Addr::from(array::<16>(bytes, at)));
    // On the wire, a v4-mapped address is of IPv4.
    let addresses = match addresses.map(|a| a.to_ipv4_mapped()) {
        [Some(a), Some(b)] => [IpAddr::from(a), IpAddr::from(b)],
        _ => addresses.map(IpAddr::from),
    };
    let port = |at| u16::from_ne_bytes(array(bytes, at));
    End {
        local: SocketAddr::new(addresses[0], port(at + 32)),
        peer: SocketAddr::new(addresses[1], port(at + 34)),
        netns: u32_at(bytes, at + 36),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::uapi::capture::BUFFER_MIN;
    use crate::uapi::capture::tests::{HEADER, defined};

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(
            PATH,
            format!(
                "/dev/{}",
                defined("SOCKSPLICE_CAPTURE_DEVICE").trim_matches('"')
            )
        );
        assert!(defined("SOCKSPLICE_CAPTURE_START").starts_with("_IOW('$', 1,"));
        assert_eq!(defined("SOCKSPLICE_CAPTURE_STOP"), "_IO('$', 2)");
        assert!(defined("SOCKSPLICE_CAPTURE_STATS").starts_with("_IOR('$', 3,"));
    }

    /// The members of a struct of the header, in order, without their lengths.
    fn members(name: &str) -> Vec<&'static str> {
        let start = HEADER.find(&format!("struct {name} {{")).unwrap();
        let text = &HEADER[start..];
        let body = &text[..text.find("\n};").unwrap()];
        let lines = body.lines().filter(|line| line.ends_with(';'));
        lines
            .filter_map(|line| line.trim_end_matches(';').split([' ', '\t']).next_back())
            .map(|member| member.split('[').next().unwrap())
            .collect()
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<Options>(), 1056);
        assert_eq!(
            members("socksplice_capture_opts"),
            [
                "snaplen",
                "buffer",
                "netns",
                "n_ports",
                "n_cgroups",
                "n_pairs",
                "reserved",
                "first",
                "last",
                "ports",
                "cgroups",
                "pairs"
            ]
        );
        assert_eq!(
            members("socksplice_capture_stats"),
            ["dropped", "dropped_bytes"]
        );
        assert_eq!(
            members("socksplice_capture_end"),
            ["saddr", "daddr", "sport", "dport", "netns"]
        );
        assert_eq!(
            members("socksplice_capture_record"),
            [
                "length", "kept", "time", "dropped", "pair", "event", "from", "reserved", "size",
                "seq", "ring", "ack", "ends"
            ]
        );
    }

    pub fn bytes(from: u8, seq: u32, ring: u32, size: u32, data: &[u8]) -> Vec<u8> {
        let mut r = vec![0; RECORD];
        let length = (RECORD + data.len()).next_multiple_of(8);
        let words = [(0, length as u32), (4, data.len() as u32), (8, 7), (24, 9)];
        let more = [
            (32, size),
            (36, seq),
            (40, ring),
            (44, 100),
            (84, 4026531840u32),
        ];
        for (at, n) in words.into_iter().chain(more) {
            r[at..at + 4].copy_from_slice(&n.to_ne_bytes());
        }
        r[29] = from;
        for (at, last, port) in [(48, 1, 40000u16), (64, 2, 80), (88, 2, 80), (104, 1, 40000)] {
            r[at + 10..at + 16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
            let ports = if at < 88 { 80 } else { 120 };
            let at = ports + if (at - 48) % 40 == 0 { 0 } else { 2 };
            r[at..at + 2].copy_from_slice(&port.to_ne_bytes());
        }
        r.extend_from_slice(data);
        r.resize(length, 0);
        r
    }

    #[test]
    fn records() {
        let mut two = bytes(0, 1, 2, 3, b"abc");
        two.extend(bytes(1, 4, 5, 6, b""));
        let mut records = Records(&two);
        let first = records.next().unwrap();
        assert_eq!((first.pair, first.from, first.data), (9, 0, &b"abc"[..]));
        assert_eq!((first.seq, first.ring, first.size), (1, 2, 3));
        assert_eq!(first.time, Duration::from_nanos(7));
        let end = End {
            local: "10.0.0.1:40000".parse().unwrap(),
            peer: "10.0.0.2:80".parse().unwrap(),
            netns: 4026531840,
        };
        assert_eq!(first.ends[0], end);
        assert_eq!(first.ends[1].local, end.peer);
        let second = records.next().unwrap();
        assert_eq!((second.from, second.size), (1, 6));
        assert!(records.next().is_none());
        assert!(Records(&two[..100]).next().is_none());
    }

    pub fn parse(bytes: &[u8]) -> Records<'_> {
        Records(bytes)
    }

    #[test]
    fn too_many_filters() {
        let mut options = Options::new(0, BUFFER_MIN);
        assert!(options.pairs(&[1; FILTERS]).is_ok());
        assert!(options.pairs(&[1; FILTERS + 1]).is_err());
    }
}
