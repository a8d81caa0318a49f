// SPDX-License-Identifier: GPL-2.0
//! The task of one socket that listens.

use std::io::ErrorKind;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::shared::{Role, Service, Shared};
use crate::log::say;
use crate::net::{Accepted, Bound, sys};

/// Accepts at `bound` until `stop`.
pub fn start(
    bound: Arc<Bound>,
    role: Role,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&bound, &role, &shared) => {}
            () = stop.cancelled() => rest(&bound, &role, &shared).await,
        }
    })
}

fn present(slot: &RwLock<Arc<Service>>) -> Arc<Service> {
    slot.read().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn accept(bound: &Bound, role: &Role, shared: &Arc<Shared>) {
    match role {
        Role::Admin => loop {
            let accepted = next(bound).await;
            tokio::spawn((shared.admin)(accepted.stream, shared.clone()));
        },
        Role::Serve(slot) => loop {
            // What there is no room for waits in the socket's queue.
            let Ok(permit) = shared.slots.clone().acquire_owned().await else {
                return;
            };
            let service = present(slot);
            if let Some(rate) = &service.rate {
                rate.one().await;
            }
            service.stats.below(service.spec.max_connections).await;
            let accepted = next(bound).await;
            // a reload may have come while it waited
            begin(present(slot), shared, accepted, permit);
        },
    }
}

/// Those who have connected by the time at which the socket is closed.
async fn rest(bound: &Bound, role: &Role, shared: &Arc<Shared>) {
    let Role::Serve(slot) = role else { return };
    for _ in 0..shared.most {
        let Ok(permit) = shared.slots.clone().try_acquire_owned() else {
            return;
        };
        match timeout(Duration::ZERO, bound.accept()).await {
            Ok(Ok(accepted)) => begin(present(slot), shared, accepted, permit),
            _ => return,
        }
    }
}

/// Has a task of its own serve a connection.
fn begin(
    service: Arc<Service>,
    shared: &Arc<Shared>,
    accepted: Accepted,
    permit: OwnedSemaphorePermit,
) {
    let (shared, most) = (shared.clone(), service.spec.max_connections);
    match service.stats.try_enter(most) {
        Some(live) => {
            tokio::spawn(connection::serve(service, shared, accepted, (permit, live)));
        }
        // Another address of the same listener was quicker.
        None => {
            tokio::spawn(async move {
                let live = service.stats.enter(most).await;
                connection::serve(service, shared, accepted, (permit, live)).await;
            });
        }
    }
}

/// The next connection. Where something is short it waits for that.
async fn next(bound: &Bound) -> Accepted {
    let mut said = false;
    loop {
        match bound.accept().await {
            Ok(accepted) => return accepted,
            // The client has gone again.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => tokio::task::yield_now().await,
            // A firewall has had its say, or the like.
            Err(e) if !sys::is_shortage(&e) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(e) => {
                if !said {
                    let at = bound.address().map_or(String::new(), |a| a.to_string());
                    say(format!("{at}: accept: {e}: waiting"));
                }
                said = true;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
