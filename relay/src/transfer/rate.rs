// SPDX-License-Identifier: GPL-2.0
//! Token buckets, which limit the bandwidth and the rate of new connections.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bucket of tokens that fills at a constant rate.
#[derive(Debug)]
pub struct Bucket {
    rate: f64,
    most: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Returns a full bucket. It gets `rate` tokens per second, and holds at most `most`.
    pub fn new(rate: u64, most: u64) -> Self {
        Bucket {
            rate: rate as f64,
            most: most as f64,
            state: Mutex::new(State {
                tokens: most as f64,
                at: Instant::now(),
            }),
        }
    }

    /// Returns a bucket for a bandwidth of `rate` bytes per second. It holds one slice, the bytes
    /// of 1/20 second.
    pub fn bandwidth(rate: u64) -> Self {
        Self::new(rate, (rate / 20).max(1))
    }

    /// Returns the number of tokens that the bucket gets per second.
    pub fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Returns the size of a slice of the bandwidth: all that the bucket holds.
    pub fn slice(&self) -> u64 {
        self.most as u64
    }

    /// Takes tokens. If the bucket has too few, it goes into debt, and the caller waits until the
    /// debt is paid. Callers that share the bucket thus get their tokens in turn.
    pub async fn take(&self, tokens: u64) {
        let wait = self.debit(tokens as f64, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Gives back the part of a slice that was not used.
    pub fn give_back(&self, tokens: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tokens = (state.tokens + tokens as f64).min(self.most);
    }

    /// Takes a token if the bucket has one. Returns true if it had.
    pub fn try_one(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refill(&mut state, Instant::now());
        let has = state.tokens >= 1.0;
        if has {
            state.tokens -= 1.0;
        }
        has
    }

    /// True if the bucket is full, as a new one is.
    pub fn is_full(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refill(&mut state, Instant::now());
        state.tokens >= self.most
    }

    fn refill(&self, state: &mut State, now: Instant) {
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        state.tokens = (state.tokens + passed * self.rate).min(self.most);
        state.at = now;
    }

    /// Takes tokens at `now`. Returns the time until the debt is paid.
    fn debit(&self, tokens: f64, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refill(&mut state, now);
        state.tokens -= tokens;
        Duration::from_secs_f64((-state.tokens / self.rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_paid_at_the_rate() {
        let bucket = Bucket::new(1000, 50);
        let now = Instant::now();
        assert_eq!(bucket.debit(50.0, now), Duration::ZERO);
        let wait = bucket.debit(100.0, now);
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
        let wait = bucket.debit(100.0, now + Duration::from_millis(100));
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
    }

    #[test]
    fn no_more_is_kept_than_the_bucket_holds() {
        let bucket = Bucket::new(1_000_000, 3);
        std::thread::sleep(Duration::from_millis(1));
        bucket.give_back(1000);
        assert!((0..3).all(|_| bucket.try_one()));
    }
}
