// SPDX-License-Identifier: GPL-2.0
//! The release of the running kernel, and whether the module fits it.

use rustix::system::uname;

/// The oldest kernel with everything that the module calls.
const OLDEST: (u32, u32) = (6, 12);
/// The versions that the tests run on.
const TESTED: [(u32, u32); 2] = [(6, 12), (7, 3)];
/// The functions of the kernel that the module imitates. The first line of the table that is no
/// comment names the kernels that a person has read for that, behind four other columns.
const IMITATED: &str = include_str!("../../../module/compat/imitated.txt");

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Support {
    Tested,
    Untested,
    /// Newer than every kernel that was read.
    Newer,
    TooOld,
}

/// As `uname -r` prints it.
pub fn running() -> String {
    uname().release().to_string_lossy().into_owned()
}

fn series(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    (number(), number())
}

/// The newest kernel that was read.
fn last_read() -> (u32, u32) {
    let mut lines = IMITATED.lines();
    let columns = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let kernels = columns.unwrap_or_default().split_whitespace().skip(4);
    kernels.map(series).max().unwrap_or_default()
}

pub fn support(release: &str) -> Support {
    let version = series(release);
    if TESTED.contains(&version) {
        Support::Tested
    } else if version < OLDEST {
        Support::TooOld
    } else if version > last_read() {
        Support::Newer
    } else {
        Support::Untested
    }
}

/// What to say of a kernel that is not [`Support::Tested`].
pub fn complaint(support: Support) -> Option<String> {
    match support {
        Support::Tested => None,
        Support::Untested => Some("is not one that was tested".into()),
        Support::Newer => {
            let (major, minor) = last_read();
            Some(format!(
                "is newer than {major}.{minor}, the last kernel that this version was compared with"
            ))
        }
        Support::TooOld => Some("is too old".into()),
    }
}

/// What to do about a kernel that is not [`Support::Tested`].
pub fn remedy(support: Support) -> String {
    match support {
        Support::TooOld => format!("boot {}.{} or later", OLDEST.0, OLDEST.1),
        Support::Newer => format!("prefer {}, or a newer socksplice", tested()),
        Support::Tested | Support::Untested => format!("prefer {}", tested()),
    }
}

fn tested() -> String {
    TESTED.map(|(a, b)| format!("{a}.{b}")).join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (release, expected) in [
            ("6.12.117+deb12-amd64", Support::Tested),
            ("7.3.4+deb13-cloud-amd64", Support::Tested),
            ("7.2.12", Support::Untested),
            ("6.18.0-rc1", Support::Untested),
            ("7.3-rc7", Support::Tested),
            ("7.4.0-rc1", Support::Newer),
            ("8.0.1-amd64", Support::Newer),
            ("6.1.0-42-amd64", Support::TooOld),
            ("5.10", Support::TooOld),
            ("odd", Support::TooOld),
        ] {
            assert_eq!(support(release), expected, "{release}");
        }
        assert_eq!(remedy(Support::TooOld), "boot 6.12 or later");
        assert_eq!(remedy(Support::Untested), "prefer 6.12 and 7.3");
        let newer = remedy(Support::Newer);
        assert_eq!(newer, "prefer 6.12 and 7.3, or a newer socksplice");
    }

    #[test]
    fn what_was_tested_was_read() {
        assert_eq!(last_read(), TESTED[TESTED.len() - 1]);
        assert_eq!(complaint(Support::Tested), None);
        assert_eq!(
            complaint(Support::Newer).unwrap(),
            "is newer than 7.3, the last kernel that this version was compared with"
        );
    }
}
