// SPDX-License-Identifier: GPL-2.0
//! Giving up root, for good.

use std::fs;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::{Error, Result};

#[derive(Debug, PartialEq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Of /etc/passwd: a process that is about to give up everything does not ask
    /// a network for names.
    pub fn find(name: &str) -> Result<Self> {
        let passwd = fs::read_to_string("/etc/passwd")
            .map_err(|e| Error::new(format!("cannot read /etc/passwd: {e}")))?;
        match find_in(&passwd, name) {
            Some(user) if user.uid != 0 && user.gid != 0 => Ok(user),
            Some(_) => Err(Error::new(format!("{name} has the rights of root"))
                .remedy("name a user without privileges")),
            None => {
                Err(Error::new(format!("there is no user {name}"))
                    .remedy("name one of /etc/passwd"))
            }
        }
    }

    /// Makes this process the user's, with no capability and no way back. Only while it
    /// has a single thread.
    pub fn become_for_good(&self) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            // Takes the capabilities, too: none of the three ids is 0 any more.
            .and_then(|()| set_thread_res_uid(uid, uid, uid))
            .and_then(|()| set_no_new_privs(true))
            .map_err(|e| Error::new(format!("cannot give up root: {e}")))
    }
}

fn find_in(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        match fields.as_slice() {
            [first, _, uid, gid, ..] if *first == name => Some(User {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_users() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nodd:x\n";
        let nobody = User {
            uid: 65534,
            gid: 65533,
        };
        assert_eq!(find_in(passwd, "nobody"), Some(nobody));
        assert_eq!(find_in(passwd, "odd"), None);
        assert_eq!(find_in(passwd, "no"), None);
        assert!(User::find("root").unwrap_err().to_string().contains("root"));
    }
}
