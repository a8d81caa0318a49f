// SPDX-License-Identifier: GPL-2.0
//! Limits by source: which sources may connect, and how many connections each may make.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Listener;
use crate::net::source_key;
use crate::transfer::Bucket;

/// The sources that have connections to a listener, or had some recently.
pub struct Sources {
    rate: Option<u64>,
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    sources: HashMap<IpAddr, Source>,
    /// Number of sources at which the next sweep is due.
    sweep_at: usize,
}

struct Source {
    open: usize,
    bucket: Option<Bucket>,
}

/// The reason for which a source is refused.
pub type Refusal = &'static str;

impl Sources {
    /// Returns the sources of a listener. If a reload has not changed the rate, these are the
    /// sources of the listener `before`.
    pub fn new(l: &Listener, before: Option<&Arc<Sources>>) -> Arc<Sources> {
        match before {
            Some(before) if before.rate == l.rate_per_source => before.clone(),
            _ => Arc::new(Sources {
                rate: l.rate_per_source,
                map: Mutex::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection from `ip`, and counts it until the guard is dropped.
    ///
    /// # Errors
    /// Returns why the source is refused: it is denied, or has reached a limit.
    pub fn admit(
        self: &Arc<Self>,
        l: &Listener,
        ip: Option<IpAddr>,
    ) -> Result<Option<Admitted>, Refusal> {
        // A Unix socket has no source address. The permissions of its file decide.
        let Some(ip) = ip else { return Ok(None) };
        let is_in = |list: &[crate::net::Network]| list.iter().any(|n| n.contains(ip));
        if is_in(&l.deny) || (!l.allow.is_empty() && !is_in(&l.allow)) {
            return Err("denied");
        }
        if l.max_per_source.is_none() && self.rate.is_none() {
            return Ok(None);
        }
        let key = source_key(ip);
        let mut map = self.lock();
        map.sweep();
        let source = map.sources.entry(key).or_insert_with(|| Source {
            open: 0,
            bucket: self.rate.map(|rate| Bucket::new(rate, rate)),
        });
        if l.max_per_source.is_some_and(|most| source.open >= most) {
            return Err("source-connections");
        }
        if source.bucket.as_ref().is_some_and(|b| !b.try_one()) {
            return Err("source-rate");
        }
        source.open += 1;
        let sources = self.clone();
        Ok(Some(Admitted { sources, key }))
    }
}

impl Map {
    /// Removes sources that have no connections and whose bucket is not still filling. The table
    /// thus grows to at most 1024 sources, or to twice those left by the last sweep.
    fn sweep(&mut self) {
        if self.sources.len() >= self.sweep_at {
            self.sources
                .retain(|_, s| s.open > 0 || s.bucket.as_ref().is_some_and(|b| !b.is_full()));
            self.sweep_at = (self.sources.len() * 2).max(1024);
        }
    }
}

pub struct Admitted {
    sources: Arc<Sources>,
    key: IpAddr,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(source) = self.sources.lock().sources.get_mut(&self.key) {
            source.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(more: &str) -> Listener {
        let text = format!("[[listener]]\nlisten='127.0.0.1:0'\nto='127.0.0.1:1'\n{more}");
        crate::config::parse(&text).unwrap().listeners.remove(0)
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn networks_decide() {
        let l = listener("allow = ['10.0.0.0/8']\ndeny = '10.1.0.0/16'");
        let sources = Sources::new(&l, None);
        assert!(sources.admit(&l, ip("10.2.3.4")).is_ok());
        assert!(sources.admit(&l, ip("::ffff:10.2.3.4")).is_ok());
        assert_eq!(sources.admit(&l, ip("10.1.3.4")).err(), Some("denied"));
        assert_eq!(sources.admit(&l, ip("11.0.0.1")).err(), Some("denied"));
    }

    #[test]
    fn a_source_has_its_share() {
        let l = listener("max_per_source = 2");
        let sources = Sources::new(&l, None);
        let first = sources.admit(&l, ip("2001:db8::1")).unwrap();
        let _second = sources.admit(&l, ip("2001:db8::2")).unwrap();
        assert_eq!(
            sources.admit(&l, ip("2001:db8::3")).err(),
            Some("source-connections")
        );
        assert!(
            sources.admit(&l, ip("2001:db8:1::3")).is_ok(),
            "another /64"
        );
        drop(first);
        assert!(sources.admit(&l, ip("2001:db8::3")).is_ok());
    }

    #[test]
    fn the_table_does_not_grow_with_sources_that_are_gone() {
        let l = listener("max_per_source = 2");
        let sources = Sources::new(&l, None);
        for i in 0..100_000u32 {
            sources
                .admit(&l, Some(IpAddr::from(i.to_be_bytes())))
                .unwrap();
        }
        assert!(sources.lock().sources.len() <= 1024);
    }
}
