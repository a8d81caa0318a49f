// SPDX-License-Identifier: GPL-2.0
//! Limits by source: which sources may connect, and how many connections each may make.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Listener;
use crate::net::source_key;
use crate::transfer::Bucket;

/// The sources that have connections to a listener, or had some recently. They go on over a reload,
/// so that `max_per_source` holds for the connections from before it too.
#[derive(Default)]
pub struct Sources {
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    sources: HashMap<IpAddr, Source>,
    /// Number of sources at which the next sweep is due.
    sweep_at: usize,
}

#[derive(Default)]
struct Source {
    open: usize,
    /// Fills at the `rate_per_source` of the last connection's listener. `None` without such a rate.
    bucket: Option<Bucket>,
}

/// The reason for which a source is refused.
pub type Refusal = &'static str;

impl Sources {
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
        if l.max_per_source.is_none() && l.rate_per_source.is_none() {
            return Ok(None);
        }
        let key = source_key(ip);
        let mut map = self.lock();
        map.sweep();
        let source = map.sources.entry(key).or_default();
        if source.bucket.as_ref().map(Bucket::rate) != l.rate_per_source {
            source.bucket = l.rate_per_source.map(|rate| Bucket::new(rate, rate));
        }
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
        let sources = Arc::new(Sources::default());
        assert!(sources.admit(&l, ip("10.2.3.4")).is_ok());
        assert!(sources.admit(&l, ip("::ffff:10.2.3.4")).is_ok());
        assert_eq!(sources.admit(&l, ip("10.1.3.4")).err(), Some("denied"));
        assert_eq!(sources.admit(&l, ip("11.0.0.1")).err(), Some("denied"));
    }

    #[test]
    fn a_source_has_its_share() {
        let l = listener("max_per_source = 2");
        let sources = Arc::new(Sources::default());
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
    fn a_reload_that_changes_the_rate_keeps_the_count() {
        let sources = Arc::new(Sources::default());
        let source = ip("10.0.0.1");
        let before = listener("max_per_source = 1\nrate_per_source = 1");
        let held = sources.admit(&before, source).unwrap();
        for rate in ["", "rate_per_source = 1000"] {
            let after = listener(&format!("max_per_source = 1\n{rate}"));
            let refusal = sources.admit(&after, source).err();
            assert_eq!(refusal, Some("source-connections"));
        }
        drop(held);
        let after = listener("max_per_source = 2\nrate_per_source = 2");
        let _held = [(); 2].map(|()| sources.admit(&after, source).unwrap());
        let after = listener("max_per_source = 3\nrate_per_source = 2");
        let refusal = sources.admit(&after, source).err();
        assert_eq!(refusal, Some("source-rate"));
    }

    #[test]
    fn the_table_does_not_grow_with_sources_that_are_gone() {
        let l = listener("max_per_source = 2");
        let sources = Arc::new(Sources::default());
        for i in 0..100_000u32 {
            sources
                .admit(&l, Some(IpAddr::from(i.to_be_bytes())))
                .unwrap();
        }
        assert!(sources.lock().sources.len() <= 1024);
    }
}
