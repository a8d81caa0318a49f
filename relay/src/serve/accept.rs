// SPDX-License-Identifier: GPL-2.0
//! The task of one socket that listens.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
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
            () = stop.cancelled() => {}
        }
    })
}

fn present(slot: &std::sync::RwLock<Arc<Service>>) -> Arc<Service> {
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
            service.stats.below(service.spec.max_connections).await;
            let accepted = next(bound).await;
            // a reload may have come while it waited
            let service = present(slot);
            if let Some(rate) = &service.rate {
                rate.one().await;
            }
            let live = service.stats.enter(service.spec.max_connections).await;
            let shared = shared.clone();
            tokio::spawn(connection::serve(service, shared, accepted, (permit, live)));
        },
    }
}

/// The next connection. Where something is short it waits for that.
async fn next(bound: &Bound) -> Accepted {
    let mut said = false;
    loop {
        match bound.accept().await {
            Ok(accepted) => return accepted,
            // The client has gone again, or a firewall has had its say.
            Err(e) if !sys::is_shortage(&e) => tokio::task::yield_now().await,
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
