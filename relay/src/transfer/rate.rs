// SPDX-License-Identifier: GPL-2.0
//! Token buckets, which limit the bandwidth and the rate of new connections.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A bucket of tokens that fills at a constant rate.
#[derive(Debug)]
pub struct Bucket {
    rate: f64,
    most: f64,
    state: Mutex<State>,
    /// Notified when tokens are given back.
    given: Notify,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
    /// Number of tokens that were ever taken.
    taken: u64,
}

/// Tokens that were taken from a bucket. Those that are not spent go back when this is dropped.
#[derive(Debug)]
pub struct Share<'b> {
    bucket: &'b Bucket,
    left: u64,
}

impl Share<'_> {
    pub fn spend(&mut self, tokens: u64) {
        self.left = self.left.saturating_sub(tokens);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.bucket.give_back(self.left);
        }
    }
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
                taken: 0,
            }),
            given: Notify::new(),
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
    /// debt is paid. Callers that share the bucket thus get their tokens in turn. The debt is paid
    /// sooner if callers before this one give tokens back.
    pub async fn take(&self, tokens: u64) -> Share<'_> {
        let place = self.debit(tokens, Instant::now());
        let share = Share {
            bucket: self,
            left: tokens,
        };
        while !self.wait(place, Instant::now()).is_zero() {
            let given = self.given.notified();
            tokio::pin!(given);
            // Register before asking, so that no notification is missed.
            given.as_mut().enable();
            let wait = self.wait(place, Instant::now());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = given => {}
            }
        }
        share
    }

    fn give_back(&self, tokens: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tokens = (state.tokens + tokens as f64).min(self.most);
        drop(state);
        // Timers have a resolution of a millisecond. Fewer tokens need wake nobody.
        if tokens as f64 * 1000.0 >= self.rate {
            self.given.notify_waiters();
        }
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

    /// Takes tokens at `now`. Returns the caller's place: the number of tokens taken up to it.
    fn debit(&self, tokens: u64, now: Instant) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refill(&mut state, now);
        state.tokens -= tokens as f64;
        state.taken += tokens;
        state.taken
    }

    /// Returns the time from `now` until the debt of the caller at `place`, and of those before it, is
    /// paid.
    fn wait(&self, place: u64, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refill(&mut state, now);
        let behind = (state.taken - place) as f64;
        Duration::from_secs_f64((-(state.tokens + behind) / self.rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_paid_at_the_rate() {
        let bucket = Bucket::new(1000, 50);
        let now = Instant::now();
        let take = |tokens, now| bucket.wait(bucket.debit(tokens, now), now);
        assert_eq!(take(50, now), Duration::ZERO);
        let wait = take(100, now);
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
        let wait = take(100, now + Duration::from_millis(100));
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
    }

    #[test]
    fn those_behind_do_not_delay_those_before() {
        let bucket = Bucket::new(1000, 50);
        let now = Instant::now();
        let first = bucket.debit(150, now);
        let second = bucket.debit(100, now);
        let wait = |place| bucket.wait(place, now).as_secs_f64();
        assert!((wait(first) - 0.1).abs() < 0.01 && (wait(second) - 0.2).abs() < 0.01);
        bucket.give_back(100);
        assert!(wait(first) < 0.01 && (wait(second) - 0.1).abs() < 0.01);
    }

    #[tokio::test]
    async fn a_caller_need_not_wait_for_tokens_that_come_back() {
        // At this rate the debt would be paid after hours.
        let bucket = Bucket::new(1, 40_000);
        let mut first = bucket.take(40_000).await;
        let second = async { bucket.take(30_000).await.spend(30_000) };
        let unused = async {
            first.spend(10_000);
            drop(first);
        };
        // The second caller waits before the first one gives back what it has not spent.
        tokio::join!(biased; second, unused);
    }

    #[test]
    fn no_more_is_kept_than_the_bucket_holds() {
        let bucket = Bucket::new(1_000_000, 3);
        std::thread::sleep(Duration::from_millis(1));
        bucket.give_back(1000);
        assert!((0..3).all(|_| bucket.try_one()));
    }
}
