// SPDX-License-Identifier: GPL-2.0
//! The release of the running kernel, and whether the module fits it.

use rustix::system::uname;

/// The oldest kernel with everything that the module calls.
const OLDEST: (u32, u32) = (6, 12);
/// The versions that the tests run on.
const TESTED: [(u32, u32); 2] = [(6, 12), (7, 3)];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Support {
    Tested,
    Untested,
    TooOld,
}

/// As `uname -r` prints it.
pub fn running() -> String {
    uname().release().to_string_lossy().into_owned()
}

pub fn support(release: &str) -> Support {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let version: (u32, u32) = (number(), number());
    if TESTED.contains(&version) {
        Support::Tested
    } else if version < OLDEST {
        Support::TooOld
    } else {
        Support::Untested
    }
}

/// What to do about a kernel that is not [`Support::Tested`].
pub fn remedy(support: Support) -> String {
    match support {
        Support::TooOld => format!("boot {}.{} or later", OLDEST.0, OLDEST.1),
        _ => {
            let tested = TESTED.map(|(a, b)| format!("{a}.{b}")).join(" and ");
            format!("prefer {tested}")
        }
    }
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
            ("6.1.0-42-amd64", Support::TooOld),
            ("5.10", Support::TooOld),
            ("odd", Support::TooOld),
        ] {
            assert_eq!(support(release), expected, "{release}");
        }
        assert_eq!(remedy(Support::TooOld), "boot 6.12 or later");
        assert_eq!(remedy(Support::Untested), "prefer 6.12 and 7.3");
    }
}
