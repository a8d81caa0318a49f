// SPDX-License-Identifier: GPL-2.0
//! The numbers of `module/uapi/socksplice.h`. A test compares them with it.

pub mod capture;
pub mod counters;

pub const FAMILY: &str = "socksplice";
pub const FAMILY_VERSION: u8 = 1;

/// The multicast group of the verdicts.
pub const GROUP_EVENTS: &str = "events";

/// `enum socksplice_event`, from 1 on.
pub const EVENTS: [&str; 6] = [
    "paired", "declined", "expired", "dropped", "ended", "limited",
];

pub const RING_SIZE_MIN: u32 = 1 << 12;
pub const RING_SIZE_MAX: u32 = 1 << 20;
pub const BUSY_POLL_MAX: u32 = 1000;

/// Declares constants 1, 2, 3, … and a list of their names for the test.
macro_rules! numbered {
    ($list:ident, $type:ty, $($name:ident),+ $(,)?) => {
        numbered!(@next $type, 1, $($name),+);
        #[cfg(test)]
        const $list: &[(&str, $type)] = &[$((stringify!($name), $name)),+];
    };
    (@next $type:ty, $n:expr, $name:ident $(, $rest:ident)*) => {
        #[allow(dead_code)]
        pub const $name: $type = $n;
        numbered!(@next $type, $n + 1 $(, $rest)*);
    };
    (@next $type:ty, $n:expr) => {};
}

numbered! { COMMANDS, u8,
    CMD_STATUS_GET, CMD_STATS_GET, CMD_PAIR_GET, CMD_STATUS_SET, CMD_PAIR_DROP,
    CMD_EVENT, CMD_SPLICE_GET, CMD_SPLICE_DROP,
}

numbered! { ATTRIBUTES, u16,
    A_PAD,
    A_STATUS_VERSION, A_STATUS_BTF, A_STATUS_SOCKOPS, A_STATUS_HOOK, A_STATUS_PAIRING,
    A_STATUS_SHADOW, A_STATUS_ENROLL_ALL, A_STATUS_SPLICE, A_STATUS_RING_SIZE,
    A_STAT_NAME, A_STAT_VALUE,
    A_PAIR_ID, A_PAIR_AGE_MS, A_PAIR_END,
    A_END_FAMILY, A_END_SADDR, A_END_DADDR, A_END_SPORT, A_END_DPORT, A_END_NETNS, A_END_COOKIE,
    A_END_TX_RING_BYTES, A_END_TX_RING_MSGS, A_END_TX_TCP_BYTES, A_END_TX_TCP_MSGS,
    A_END_RING_SIZE, A_END_RING_MEM, A_END_RING_QUEUED, A_END_CLOSED,
    A_PAIR_DRAINING, A_END_INODE, A_END_CGROUP, A_STATUS_EVENTS,
    A_EVENT, A_EVENT_REASON, A_EVENT_TIME, A_EVENT_SEQ,
    A_STATUS_SO_SPLICE, A_STATUS_LITERAL,
    A_SPLICE_SOURCE, A_SPLICE_SINK, A_SPLICE_UID, A_SPLICE_MOVED, A_SPLICE_MAX, A_SPLICE_IDLE_MS,
    A_SPLICE_AGE_MS, A_END_GROUP, A_STATUS_MEMORY_CAP, A_STATUS_SPLICE_NATIVE,
    A_END_BUSY_POLL,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../module/uapi/socksplice.h");

    /// Enumerators with the prefix, in order, without the `_UNSPEC` one.
    fn enumerators(prefix: &str) -> Vec<String> {
        HEADER
            .lines()
            .filter_map(|line| line.strip_prefix('\t'))
            .filter_map(|line| line.split(',').next())
            .filter(|name| name.starts_with(prefix) && !name.ends_with("_UNSPEC"))
            .map(|name| name.replacen("SOCKSPLICE_", "", 1))
            .collect()
    }

    #[test]
    fn events_are_those_of_the_header() {
        let names: Vec<_> = enumerators("SOCKSPLICE_EVENT_")
            .iter()
            .map(|name| name.replacen("EVENT_", "", 1).to_lowercase())
            .collect();
        assert_eq!(names, EVENTS);
        assert_eq!(
            defined("SOCKSPLICE_GENL_EVENTS"),
            format!("\"{GROUP_EVENTS}\"")
        );
    }

    fn defined(name: &str) -> String {
        let line = HEADER
            .lines()
            .find(|line| line.starts_with(&format!("#define {name}\t")))
            .unwrap();
        line.split('\t').nth(1).unwrap().trim().to_string()
    }

    #[test]
    fn commands_are_those_of_the_header() {
        let ours: Vec<_> = COMMANDS.iter().map(|c| c.0.to_string()).collect();
        assert_eq!(ours, enumerators("SOCKSPLICE_CMD_"));
        assert_eq!(COMMANDS.last().unwrap().1 as usize, COMMANDS.len());
    }

    #[test]
    fn attributes_are_those_of_the_header() {
        let ours: Vec<_> = ATTRIBUTES.iter().map(|a| a.0.to_string()).collect();
        assert_eq!(ours, enumerators("SOCKSPLICE_A_"));
        assert_eq!(ATTRIBUTES.last().unwrap().1 as usize, ATTRIBUTES.len());
    }

    #[test]
    fn limits_are_those_of_the_header() {
        assert_eq!(defined("SOCKSPLICE_GENL_NAME"), format!("\"{FAMILY}\""));
        assert_eq!(defined("SOCKSPLICE_GENL_VERSION"), "1");
        assert_eq!(FAMILY_VERSION, 1);
        assert_eq!(defined("SOCKSPLICE_RING_SIZE_MIN"), "(1U << 12)");
        assert_eq!(RING_SIZE_MIN, 1 << 12);
        assert_eq!(defined("SOCKSPLICE_RING_SIZE_MAX"), "(1U << 20)");
        assert_eq!(RING_SIZE_MAX, 1 << 20);
        assert_eq!(defined("SOCKSPLICE_BUSY_POLL_MAX"), "1000U");
        assert_eq!(BUSY_POLL_MAX, 1000);
    }
}
