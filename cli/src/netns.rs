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

    /// The inode number of a namespace, given as that or by its name.
    pub fn inode(&self, text: &str) -> Option<u64> {
        let named = self.0.iter().find(|(_, name)| *name == text);
        named.map(|n| *n.0).or_else(|| text.parse().ok())
    }

    #[cfg(test)]
    pub fn of(list: &[(u64, &str)]) -> Self {
        Names(list.iter().map(|(i, n)| (*i, n.to_string())).collect())
    }
}
