// SPDX-License-Identifier: GPL-2.0
//! Names of network namespaces, where `ip netns` gave them one.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Inode number to name.
pub struct Names(HashMap<u64, String>);

impl Names {
    pub fn read() -> Self {
        let mut names = HashMap::new();
        for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            if let Ok(metadata) = fs::metadata(entry.path()) {
                names.insert(metadata.ino(), entry.file_name().to_string_lossy().into());
            }
        }
        Names(names)
    }

    pub fn get(&self, inode: u64) -> Option<&str> {
        self.0.get(&inode).map(String::as_str)
    }

    /// The inode number of a namespace, given as a number or by its name. No namespace has the
    /// number 0, which means all of them to the module.
    pub fn inode(&self, text: &str) -> Option<u64> {
        let named = self.0.iter().find(|(_, name)| *name == text);
        let inode = named.map(|n| *n.0).or_else(|| text.parse().ok());
        inode.filter(|inode| *inode != 0)
    }

    #[cfg(test)]
    pub fn of(list: &[(u64, &str)]) -> Self {
        Names(list.iter().map(|(i, n)| (*i, n.to_string())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_has_the_number_0() {
        let names = Names::of(&[(7, "blue"), (8, "0")]);
        assert_eq!(names.inode("blue"), Some(7));
        assert_eq!(names.inode("4026531840"), Some(4026531840));
        // the name comes first
        assert_eq!(names.inode("0"), Some(8));
        for none in ["0", "00", "+0", "-1", "green", ""] {
            assert_eq!(Names::of(&[]).inode(none), None, "{none}");
        }
    }
}
